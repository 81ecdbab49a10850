//! Datasets without boxes: a folder for each class, a table of classes, masks.

use std::io::BufReader;
use std::path::{Path, PathBuf};

use orinoco_config::{FileKind, ReadError};
use orinoco_core::{Diagnosis, codes};

use super::errors::{DatasetError, RowError};
use super::labels::{Dataset, DatasetKind, FolderError, Item, Labels, TABLES, class_names, list_images};

/// Maximum number of pixels of a mask: that of the largest photos. The header of a damaged file may have any size.
const MASK_PIXELS_MAX: u64 = 1 << 28;

/// Reads a dataset of `<class>/<image>`, with classes in the order of their names.
pub(super) fn read_classes(dir: &Path) -> Result<Dataset, DatasetError> {
    let entries = std::fs::read_dir(dir).map_err(|error| FolderError::new(dir, error))?;
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
pub(super) fn read_table(dir: &Path) -> Result<Dataset, DatasetError> {
    let file = dir.join("labels.csv");
    let text = TABLES.read_text(&file)?;
    let mut classes: Vec<String> = Vec::new();
    let mut items = Vec::new();
    for (index, row) in text.lines().enumerate().filter(|(_, row)| !row.trim().is_empty()) {
        let wrong = |error| DatasetError::Row { file: file.clone(), line: index + 1, error };
        let (name, label) = row.split_once(',').ok_or_else(|| wrong(RowError::NoComma))?;
        let image =
            [dir.join("images").join(name.trim()), dir.join(name.trim())].into_iter().find(|p| p.is_file());
        let Some(image) = image else {
            // The first row may be a heading, which names no file.
            if index == 0 {
                continue;
            }
            return Err(wrong(RowError::NoImage(name.trim().to_owned())));
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
pub(super) fn read_masks(dir: &Path) -> Result<Dataset, DatasetError> {
    let mask_of = |image: &Path| {
        dir.join("masks").join(image.file_stem().unwrap_or_default()).with_added_extension("png")
    };
    let mut items = Vec::new();
    for image in list_images(&dir.join("images"))? {
        let mask = mask_of(&image);
        if !mask.is_file() {
            return Err(DatasetError::NoMask { dir: dir.to_owned(), image, mask });
        }
        items.push(Item { image, labels: Labels::Mask(mask) });
    }
    let classes = class_names(dir)?;
    Ok(Dataset { kind: DatasetKind::Masks, classes, items })
}

/// Next step where a mask is not read.
const MASK_NEXT: &str = "save it as a PNG of 8 bits, grey or with a palette, whose values are class ids";

/// Reason why a mask is not read.
#[derive(Debug)]
pub(super) enum MaskError {
    /// The file cannot be opened.
    File(ReadError),
    /// The file is not a PNG image that can be decoded.
    Png(png::DecodingError),
    /// The pixels are not one value of 8 bits each.
    Pixels(png::ColorType, png::BitDepth),
    /// The mask has more than [`MASK_PIXELS_MAX`] pixels.
    TooLarge { width: u32, height: u32 },
}

impl From<png::DecodingError> for MaskError {
    fn from(error: png::DecodingError) -> Self {
        Self::Png(error)
    }
}

impl MaskError {
    /// Converts the error to a fault of the file `mask`.
    pub(super) fn about(self, mask: &Path) -> Diagnosis {
        let cause = match self {
            Self::File(error) => return error.into(),
            Self::Png(error) => error.to_string(),
            Self::Pixels(kind, depth) => format!("its pixels are {kind:?} of {depth:?} bits"),
            Self::TooLarge { width, height } => format!("it has {width} by {height} pixels"),
        };
        Diagnosis::new(&codes::DATASET, mask.display(), cause, MASK_NEXT)
    }
}

pub(super) fn read_mask(mask: &Path) -> Result<(Vec<u8>, (u32, u32)), MaskError> {
    let kind = FileKind { noun: "a PNG file", next: MASK_NEXT, ..TABLES };
    let file = kind.open(mask).map_err(MaskError::File)?;
    // No conversion: the indices of a palette are the classes, its colours are for people.
    let mut decoder = png::Decoder::new(BufReader::new(file));
    decoder.set_transformations(png::Transformations::IDENTITY);
    let mut reader = decoder.read_info()?;
    let info = reader.info();
    let (width, height, kind) = (info.width, info.height, (info.color_type, info.bit_depth));
    if !matches!(kind, (png::ColorType::Grayscale | png::ColorType::Indexed, png::BitDepth::Eight)) {
        return Err(MaskError::Pixels(kind.0, kind.1));
    }
    if u64::from(width) * u64::from(height) > MASK_PIXELS_MAX {
        return Err(MaskError::TooLarge { width, height });
    }
    let mut pixels = vec![0; width as usize * height as usize];
    reader.next_frame(&mut pixels)?;
    Ok((pixels, (width, height)))
}
