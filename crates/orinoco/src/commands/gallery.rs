//! A folder of images of known people or things: `DIR/NAME.jpg`, or `DIR/NAME/*.jpg` with several of each.

use std::path::{Path, PathBuf};

use orinoco_core::{Diagnosis, WithSubject, codes};
use orinoco_eval::list_images;
use orinoco_vision::Gallery;

/// Reads the gallery in `dir`; `embed` makes an embedding of an image.
pub(crate) fn read(
    dir: &Path,
    mut embed: impl FnMut(&Path) -> Result<Vec<f32>, Diagnosis>,
) -> Result<Gallery, Diagnosis> {
    let known = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut named: Vec<(String, PathBuf)> =
        list_images(dir)?.into_iter().map(|image| (known(&image), image)).collect();
    let entries = std::fs::read_dir(dir).about(&codes::FILE_MISSING, dir.display(), "check the folder")?;
    let mut folders: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    for folder in folders {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        named.extend(list_images(&folder)?.into_iter().map(|image| (name.clone(), image)));
    }
    if named.is_empty() {
        let next = "put an image of each person or object there, as NAME.jpg or NAME/1.jpg";
        return Err(Diagnosis::new(&codes::DATASET, dir.display(), "it has no images", next));
    }
    let mut gallery = Gallery::default();
    for (name, image) in named {
        gallery.add(&name, &embed(&image)?);
    }
    Ok(gallery)
}
