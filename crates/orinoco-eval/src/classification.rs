//! Accuracy of classifiers of whole images.

use crate::Confusion;

/// Labelled class of one image, and the classes that the model found.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Index of the labelled class.
    pub labelled: usize,
    /// Indices of the classes found, best first.
    pub found: Vec<usize>,
}

/// Classification figures of a dataset.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Share of images whose best class is the labelled one; `None` without images.
    pub top1: Option<f64>,
    /// Share of images with the labelled class among the best five.
    pub top5: Option<f64>,
    /// Confusion matrix of labelled and best classes.
    pub confusion: Confusion,
}

/// Evaluates `answers` among `classes` classes.
pub fn evaluate(answers: &[Answer], classes: usize) -> Report {
    let mut confusion = Confusion::new(classes);
    for answer in answers {
        if let Some(best) = answer.found.first() {
            confusion.count(answer.labelled, *best);
        }
    }
    let share = |among: usize| {
        let right =
            answers.iter().filter(|answer| answer.found.iter().take(among).any(|c| *c == answer.labelled));
        (!answers.is_empty()).then(|| right.count() as f64 / answers.len() as f64)
    };
    Report { top1: share(1), top5: share(5), confusion }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_right_answers() {
        let answer = |labelled, found: &[usize]| Answer { labelled, found: found.to_vec() };
        let answers =
            [answer(0, &[0, 1]), answer(1, &[0, 1]), answer(2, &[]), answer(3, &[1, 2, 4, 5, 6, 3])];
        let report = evaluate(&answers, 7);
        assert_eq!((report.top1, report.top5), (Some(0.25), Some(0.5)));
        assert_eq!(
            (report.confusion.at(1, 0), report.confusion.row(2), report.confusion.column(0)),
            (1, 0, 2)
        );
        assert_eq!(evaluate(&[], 7).top1, None);
    }
}
