//! Identification: compares an embedding with those of known people or things.

use orinoco_core::ClassScore;

/// Embeddings of known identities, with several for an identity that has several images.
#[derive(Clone, Debug, Default)]
pub struct Gallery {
    names: Vec<String>,
    known: Vec<(u32, Vec<f32>)>,
}

impl Gallery {
    /// Adds an image of `name`; `embedding` is a unit vector.
    pub fn add(&mut self, name: &str, embedding: &[f32]) {
        let index = self.names.iter().position(|known| known == name).unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        self.known.push((index as u32, embedding.to_owned()));
    }

    /// Returns the names of the identities, by index.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Replaces `matches` with at most `top` identities whose most similar image scores above `score_min`, best first.
    /// The score is the cosine of the angle between unit vectors: 1 for the same image.
    pub fn find(&self, embedding: &[f32], score_min: f32, top: usize, matches: &mut Vec<ClassScore>) {
        matches.clear();
        // An embedding that was not finite has been left out, and matches nobody.
        if embedding.is_empty() {
            return;
        }
        for (class_id, known) in &self.known {
            let score = known.iter().zip(embedding).map(|(a, b)| a * b).sum::<f32>();
            match matches.iter_mut().find(|found| found.class_id == *class_id) {
                Some(found) => found.score = found.score.max(score),
                None => matches.push(ClassScore { class_id: *class_id, score }),
            }
        }
        matches.retain(|found| found.score > score_min);
        matches.sort_by(|a, b| b.score.total_cmp(&a.score));
        matches.truncate(top);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_similar_image_of_each_counts() {
        let mut gallery = Gallery::default();
        gallery.add("ann", &[1.0, 0.0]);
        gallery.add("bob", &[0.0, 1.0]);
        gallery.add("ann", &[0.6, 0.8]);
        let mut matches = Vec::new();
        let mut found = |embedding: &[f32], score_min, top| {
            gallery.find(embedding, score_min, top, &mut matches);
            matches
                .iter()
                .map(|m| (gallery.names()[m.class_id as usize].clone(), m.score))
                .collect::<Vec<_>>()
        };
        assert_eq!(found(&[0.6, 0.8], 0.0, 5), [("ann".to_owned(), 1.0), ("bob".to_owned(), 0.8)]);
        assert_eq!(found(&[0.6, 0.8], 0.9, 5), [("ann".to_owned(), 1.0)]);
        assert_eq!(found(&[0.0, 1.0], 0.0, 1), [("bob".to_owned(), 1.0)]);
        assert!(found(&[-1.0, 0.0], 0.5, 5).is_empty());
        assert!(found(&[], 0.0, 5).is_empty());
        // Like every threshold: the score must be greater, not equal.
        assert!(found(&[0.0, 1.0], 1.0, 5).is_empty());
    }
}
