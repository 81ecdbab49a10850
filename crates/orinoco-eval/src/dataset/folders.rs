//! Datasets without boxes: a folder for each class, a table of classes, masks.

use std::io::BufReader;
use std::path::{Path, PathBuf};

use orinoco_config::FileKind;
use orinoco_core::{Diagnosis, WithSubject, codes};

use super::labels::{
    Dataset, DatasetKind, Item, Labels, TABLES, bad_line, class_names, list_images, unknown,
};

/// Maximum number of pixels of a mask: that of the largest photos. The header of a damaged file may have any size.
const MASK_PIXELS_MAX: u64 = 1 << 28;

/// Reads a dataset of `<class>/<image>`, with classes in the order of their names.
pub(super) fn read_classes(dir: &Path) -> Result<Dataset, Diagnosis> {
    let entries = std::fs::read_dir(dir).about(&codes::FILE_MISSING, dir.display(), "check the folder")?;
    let mut folders: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    let mut items = Vec::new();
    for (class, folder) in folders.iter().enumerate() {
        let labelled =
            list_images(folder)?.into_iter().map(|image| Item { image, labels: Labels::Class(class) });
        items.extend(labelled);
    }
    let classes =
        folders.iter().filter_map(|folder| Some(folder.file_name()?.to_string_lossy().into_owned()));
    Ok(Dataset { kind: DatasetKind::ClassFolders, classes: classes.collect(), items })
}

/// Reads rows of `file,label`; the label is a class's name or number. Names are numbered in the order in which they
/// appear.
pub(super) fn read_table(dir: &Path) -> Result<Dataset, Diagnosis> {
    let file = dir.join("labels.csv");
    let text = TABLES.read_text(&file)?;
    let mut classes: Vec<String> = Vec::new();
    let mut items = Vec::new();
    for (index, row) in text.lines().enumerate().filter(|(_, row)| !row.trim().is_empty()) {
        let (name, label) = row
            .split_once(',')
            .ok_or_else(|| bad_line(&file, index + 1, "it has no comma between file and label"))?;
        let image =
            [dir.join("images").join(name.trim()), dir.join(name.trim())].into_iter().find(|p| p.is_file());
        let Some(image) = image else {
            // The first row may be a heading, which names no file.
            if index == 0 {
                continue;
            }
            return Err(bad_line(&file, index + 1, format!("there is no image {}", name.trim())));
        };
        let label = label.trim();
        let class = label.parse().unwrap_or_else(|_| {
            classes.iter().position(|known| known == label).unwrap_or_else(|| {
                classes.push(label.to_owned());
                classes.len() - 1
            })
        });
        items.push(Item { image, labels: Labels::Class(class) });
    }
    Ok(Dataset { kind: DatasetKind::ClassTable, classes, items })
}

/// Reads `images/<name>.jpg` with `masks/<name>.png`.
pub(super) fn read_masks(dir: &Path) -> Result<Dataset, Diagnosis> {
    let mask_of = |image: &Path| {
        dir.join("masks").join(image.file_stem().unwrap_or_default()).with_added_extension("png")
    };
    let mut items = Vec::new();
    for image in list_images(&dir.join("images"))? {
        let mask = mask_of(&image);
        if !mask.is_file() {
            return Err(unknown(dir, &format!("{} has no mask {}", image.display(), mask.display())));
        }
        items.push(Item { image, labels: Labels::Mask(mask) });
    }
    let classes = class_names(dir)?;
    Ok(Dataset { kind: DatasetKind::Masks, classes, items })
}

pub(super) fn read_mask(mask: &Path) -> Result<(Vec<u8>, (u32, u32)), Diagnosis> {
    let next = "save it as a PNG of 8 bits, grey or with a palette, whose values are class ids";
    let file = FileKind { noun: "a PNG file", next, ..TABLES }.open(mask)?;
    // No conversion: the indices of a palette are the classes, its colours are for people.
    let mut decoder = png::Decoder::new(BufReader::new(file));
    decoder.set_transformations(png::Transformations::IDENTITY);
    let mut reader = decoder.read_info().about(&codes::DATASET, mask.display(), next)?;
    let info = reader.info();
    let (size, kind) = ((info.width, info.height), (info.color_type, info.bit_depth));
    if !matches!(kind, (png::ColorType::Grayscale | png::ColorType::Indexed, png::BitDepth::Eight)) {
        let cause = format!("its pixels are {:?} of {:?} bits", kind.0, kind.1);
        return Err(Diagnosis::new(&codes::DATASET, mask.display(), cause, next));
    }
    if u64::from(size.0) * u64::from(size.1) > MASK_PIXELS_MAX {
        let cause = format!("it has {} by {} pixels", size.0, size.1);
        return Err(Diagnosis::new(&codes::DATASET, mask.display(), cause, next));
    }
    let mut pixels = vec![0; size.0 as usize * size.1 as usize];
    reader.next_frame(&mut pixels).about(&codes::DATASET, mask.display(), next)?;
    Ok((pixels, size))
}
