//! YOLO's layout: `images/` and `labels/`, with a text file for each image and a row for each object.

use std::path::Path;

use super::errors::{DatasetError, RowError};
use super::labels::{Dataset, DatasetKind, Item, LabelledBox, Labels, TABLES, class_names, list_images};

pub(super) fn read(dir: &Path) -> Result<Dataset, DatasetError> {
    let mut items = Vec::new();
    for image in list_images(&dir.join("images"))? {
        let name = Path::new(image.file_stem().unwrap_or_default()).with_added_extension("txt");
        let file = dir.join("labels").join(name);
        let size = image::image_dimensions(&image);
        let (width, height) = size.map_err(|error| DatasetError::ImageSize(image.clone(), error))?;
        // An image without a file of labels has no objects.
        let text = if file.is_file() { TABLES.read_text(&file)? } else { String::new() };
        let rows = text.lines().enumerate().filter(|(_, row)| !row.trim().is_empty());
        let boxes = rows.map(|(index, row)| {
            read_row(row, f64::from(width), f64::from(height)).map_err(|error| DatasetError::Row {
                file: file.clone(),
                line: index + 1,
                error,
            })
        });
        items.push(Item { labels: Labels::Boxes(boxes.collect::<Result<_, _>>()?), image });
    }
    let classes = class_names(dir)?;
    Ok(Dataset { kind: DatasetKind::Yolo, classes, items })
}

/// Parses `class cx cy w h`, or `class x y x y ..` of a polygon, whose bounding box is used.
fn read_row(row: &str, width: f64, height: f64) -> Result<LabelledBox, RowError> {
    let mut words = row.split_whitespace();
    let class = words.next().unwrap_or_default();
    let class = class.parse::<usize>().map_err(|_| RowError::Class(class.to_owned()))?;
    let values = words.map(|word| match word.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        _ => Err(RowError::Number(word.to_owned())),
    });
    let values = values.collect::<Result<Vec<f64>, RowError>>()?;
    let bounds = match values[..] {
        [cx, cy, w, h] => [(cx - w / 2.0) * width, (cy - h / 2.0) * height, w * width, h * height],
        ref points if points.len() >= 6 && points.len().is_multiple_of(2) => {
            let range = |axis: usize, side: f64| {
                let along = points.iter().skip(axis).step_by(2);
                let (least, most) = along.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
                    (least.min(*value), most.max(*value))
                });
                (least * side, (most - least) * side)
            };
            let ((x, w), (y, h)) = (range(0, width), range(1, height));
            [x, y, w, h]
        }
        _ => return Err(RowError::Values(values.len())),
    };
    if bounds[2] < 0.0 || bounds[3] < 0.0 {
        return Err(RowError::NegativeSize);
    }
    Ok(LabelledBox { class, bounds, area: bounds[2] * bounds[3], crowd: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_boxes() {
        let read = |row| read_row(row, 100.0, 50.0);
        let bounds =
            |row| read(row).map(|found| (found.class, found.bounds.map(|value| value.round() as i64)));
        assert_eq!(bounds("3 0.5 0.5 0.2 0.4"), Ok((3, [40, 15, 20, 20])));
        assert_eq!(bounds("0 0.1 0.2 0.5 0.2 0.3 0.8"), Ok((0, [10, 10, 40, 30])));
        assert_eq!(bounds("x 0 0 1 1"), Err(RowError::Class("x".to_owned())));
        assert_eq!(bounds("0 0.5 nan 1 1"), Err(RowError::Number("nan".to_owned())));
        assert_eq!(bounds("0 0.5 0.5"), Err(RowError::Values(2)));
        assert_eq!(bounds("0 0.5 0.5 -1 1"), Err(RowError::NegativeSize));
        assert_eq!(RowError::Values(2).to_string(), "it has 2 numbers after the class; a box needs 4");
    }
}
