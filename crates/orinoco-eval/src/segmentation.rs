//! Accuracy of semantic segmentation, by pixels.

use crate::Confusion;

/// Value of pixels that are not evaluated: the edges of PASCAL VOC's objects, Cityscapes' own car.
pub const NOT_LABELLED: u8 = 255;

/// Adds the pixels of one image to `confusion`. `labelled` has the true class of each pixel of an image of `size`
/// (columns and rows); `found` has the classes of a grid of `grid` columns and rows over the same image, read at the
/// nearest cell.
pub fn count(confusion: &mut Confusion, labelled: &[u8], size: (u32, u32), found: &[u8], grid: (u32, u32)) {
    let (width, height) = (size.0 as usize, size.1 as usize);
    let (columns, rows) = (grid.0 as usize, grid.1 as usize);
    // Cell under the centre of a pixel.
    let cell =
        |pixel: usize, pixels: usize, cells: usize| ((2 * pixel + 1) * cells / (2 * pixels)).min(cells - 1);
    for (index, truth) in labelled.iter().enumerate().filter(|(_, truth)| **truth != NOT_LABELLED) {
        let at = cell(index / width, height, rows) * columns + cell(index % width, width, columns);
        confusion.count(usize::from(*truth), usize::from(found[at]));
    }
}

/// Segmentation figures of a dataset.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Mean of the classes' IoU; `None` without pixels.
    pub miou: Option<f64>,
    /// Share of pixels with the correct class.
    pub pixel_accuracy: Option<f64>,
    /// Intersection over union of each class; `None` where it is neither labelled nor found.
    pub iou: Vec<Option<f64>>,
}

/// Computes the figures from counted pixels.
pub fn summarise(confusion: &Confusion) -> Report {
    let classes = 0..confusion.classes();
    let iou = |class: usize| {
        let shared = confusion.at(class, class);
        let union = confusion.row(class) + confusion.column(class) - shared;
        (union > 0).then(|| shared as f64 / union as f64)
    };
    let all: Vec<Option<f64>> = classes.clone().map(iou).collect();
    let known: Vec<f64> = all.iter().copied().flatten().collect();
    let pixels: u64 = classes.clone().map(|class| confusion.row(class)).sum();
    let right: u64 = classes.map(|class| confusion.at(class, class)).sum();
    Report {
        miou: (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64),
        pixel_accuracy: (pixels > 0).then(|| right as f64 / pixels as f64),
        iou: all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_are_judged_under_their_cells() {
        let mut confusion = Confusion::new(3);
        // Four by two pixels over a grid of two cells: the left half is class 0, the right half class 1.
        count(&mut confusion, &[0, 0, 1, 1, 0, 1, 1, NOT_LABELLED], (4, 2), &[0, 1], (2, 1));
        let report = summarise(&confusion);
        assert_eq!(report.iou, [Some(3.0 / 4.0), Some(3.0 / 4.0), None]);
        assert_eq!((report.miou, report.pixel_accuracy), (Some(0.75), Some(6.0 / 7.0)));
    }
}
