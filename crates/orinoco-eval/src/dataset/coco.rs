//! COCO's layout: `instances.json` (or `annotations/instances_*.json`) and `images/`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::errors::DatasetError;
use super::labels::{ANNOTATIONS, Dataset, DatasetKind, Item, LabelledBox, Labels};

#[derive(Deserialize)]
struct Instances {
    images: Vec<Image>,
    annotations: Vec<Annotation>,
    categories: Vec<Category>,
}

#[derive(Deserialize)]
struct Image {
    id: i64,
    file_name: String,
}

#[derive(Deserialize)]
struct Annotation {
    image_id: i64,
    category_id: i64,
    bbox: [f64; 4],
    area: Option<f64>,
    #[serde(default)]
    iscrowd: u8,
}

#[derive(Deserialize)]
struct Category {
    id: i64,
    name: String,
}

/// Returns the path of the annotations, if `dir` has them.
pub(super) fn instances(dir: &Path) -> Option<PathBuf> {
    let here = dir.join("instances.json");
    if here.is_file() {
        return Some(here);
    }
    let entries = std::fs::read_dir(dir.join("annotations")).ok()?.flatten().map(|entry| entry.path());
    let is_one = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("instances") && name.ends_with(".json")
    };
    let mut found: Vec<PathBuf> = entries.filter(is_one).collect();
    found.sort();
    found.into_iter().next()
}

pub(super) fn read(dir: &Path, instances: &Path) -> Result<Dataset, DatasetError> {
    let file = || instances.to_owned();
    let bytes = ANNOTATIONS.read(instances)?;
    let read: Instances =
        serde_json::from_slice(&bytes).map_err(|error| DatasetError::Annotations(file(), error))?;
    // Category ids have gaps. Classes are numbered without gaps, in the order of the list.
    let classes: HashMap<i64, usize> =
        read.categories.iter().enumerate().map(|(index, category)| (category.id, index)).collect();
    let mut boxes: HashMap<i64, Vec<LabelledBox>> = HashMap::new();
    for (index, annotation) in read.annotations.iter().enumerate() {
        let category = annotation.category_id;
        let class = classes.get(&category).ok_or_else(|| DatasetError::UnknownCategory {
            file: file(),
            annotation: index,
            category,
        })?;
        let [_, _, w, h] = annotation.bbox;
        boxes.entry(annotation.image_id).or_default().push(LabelledBox {
            class: *class,
            bounds: annotation.bbox,
            area: annotation.area.unwrap_or(w * h),
            crowd: annotation.iscrowd != 0,
        });
    }
    let folder = dir.join("images");
    let folder = if folder.is_dir() { folder } else { dir.to_owned() };
    let mut items: Vec<Item> = Vec::with_capacity(read.images.len());
    for image in &read.images {
        let path = folder.join(&image.file_name);
        std::fs::metadata(&path).map_err(|error| DatasetError::NoImage(path.clone(), error))?;
        items.push(Item { image: path, labels: Labels::Boxes(boxes.remove(&image.id).unwrap_or_default()) });
    }
    let classes = read.categories.into_iter().map(|category| category.name).collect();
    Ok(Dataset { kind: DatasetKind::Coco, classes, items })
}
