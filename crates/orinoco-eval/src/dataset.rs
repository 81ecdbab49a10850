//! Labelled datasets in the usual folder layouts.

mod coco;
mod errors;
mod folders;
mod labels;
mod yolo;

use std::path::Path;

use orinoco_core::Diagnosis;

use self::errors::DatasetError;
pub(crate) use self::labels::TABLES;
pub use self::labels::{Dataset, DatasetKind, FolderError, Item, LabelledBox, Labels, list_images};

impl Dataset {
    /// Reads the dataset in `dir`. Its layout is recognised by the files in it.
    pub fn open(dir: &Path) -> Result<Self, Diagnosis> {
        Ok(Self::read(dir)?)
    }

    fn read(dir: &Path) -> Result<Self, DatasetError> {
        std::fs::read_dir(dir).map_err(|error| DatasetError::NotFound(dir.to_owned(), error))?;
        let dataset = if let Some(instances) = coco::instances(dir) {
            coco::read(dir, &instances)?
        } else if dir.join("images").is_dir() && dir.join("masks").is_dir() {
            folders::read_masks(dir)?
        } else if dir.join("images").is_dir() && dir.join("labels").is_dir() {
            yolo::read(dir)?
        } else if dir.join("labels.csv").is_file() {
            folders::read_table(dir)?
        } else if dir.join("images").is_dir() {
            // Without this, `images` would be taken for the only class of a folder of classes.
            return Err(DatasetError::NoLabels(dir.to_owned()));
        } else {
            folders::read_classes(dir)?
        };
        if dataset.items.is_empty() {
            return Err(DatasetError::Empty(dir.to_owned()));
        }
        Ok(dataset)
    }

    /// Reads the classes of the pixels in `mask`, an image of 8-bit values (grey or palette indices), with its width
    /// and height.
    pub fn read_mask(mask: &Path) -> Result<(Vec<u8>, (u32, u32)), Diagnosis> {
        folders::read_mask(mask).map_err(|error| error.about(mask))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_without_labels_are_no_dataset() {
        let folder = tempfile::tempdir().expect("a folder");
        let images = folder.path().join("images");
        std::fs::create_dir(&images).expect("a folder");
        std::fs::write(images.join("1.png"), b"").expect("written");
        let fault = Dataset::open(folder.path()).expect_err("no labels");
        assert_eq!(fault.code.id, "E0602");
        assert_eq!(fault.cause, "it has images/, but no labels/, masks/ or instances.json");
        // A folder of classes is one still.
        let class = folder.path().join("set/person");
        std::fs::create_dir_all(&class).expect("a folder");
        std::fs::write(class.join("1.png"), b"").expect("written");
        let dataset = Dataset::open(&folder.path().join("set")).expect("a dataset");
        assert_eq!(dataset.classes, ["person"]);
    }
}
