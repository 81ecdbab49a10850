use orinoco_core::Detection;
use serde::{Deserialize, Serialize};

/// The schema name of [`ResultLine`].
pub const RESULT_SCHEMA: &str = "orinoco.result/1";

/// What one model found in one frame or image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultLine {
    /// [`RESULT_SCHEMA`].
    pub schema: String,
    /// The stream's name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stream: Option<String>,
    /// The image's path, for `infer`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub image: Option<String>,
    /// The frame's number at its source, from 0.
    pub seq: u64,
    /// Presentation time in nanoseconds.
    pub pts_ns: u64,
    /// The model's name.
    pub model: String,
    /// The engine's name.
    pub engine: String,
    /// Objects, best first.
    pub detections: Vec<DetectionJson>,
}

/// One object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DetectionJson {
    /// Index into the model's labels.
    pub class_id: u32,
    /// The class's name.
    pub label: String,
    /// 0 to 1.
    pub score: f32,
    /// `[x1, y1, x2, y2]` in source pixels.
    #[serde(rename = "box")]
    pub bounds: [f32; 4],
}

impl DetectionJson {
    /// A detection with its class's name.
    pub fn new(found: &Detection, label: &str) -> Self {
        let b = found.bounds;
        let bounds = [b.x1, b.y1, b.x2, b.y2];
        Self { class_id: found.class_id, label: label.to_owned(), score: found.score, bounds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orinoco_core::BoxF;

    #[test]
    fn the_contract() {
        let found =
            Detection { class_id: 2, score: 0.5, bounds: BoxF { x1: 1.0, y1: 2.0, x2: 3.5, y2: 4.0 } };
        let line = ResultLine {
            schema: RESULT_SCHEMA.to_owned(),
            stream: Some("cam".to_owned()),
            image: None,
            seq: 7,
            pts_ns: 40_000_000,
            model: "m".to_owned(),
            engine: "tract".to_owned(),
            detections: vec![DetectionJson::new(&found, "car")],
        };
        let text = serde_json::to_string(&line).expect("serialises");
        assert_eq!(
            text,
            r#"{"schema":"orinoco.result/1","stream":"cam","seq":7,"pts_ns":40000000,"model":"m","engine":"tract","detections":[{"class_id":2,"label":"car","score":0.5,"box":[1.0,2.0,3.5,4.0]}]}"#
        );
        assert_eq!(serde_json::from_str::<ResultLine>(&text).expect("parses"), line);
    }
}
