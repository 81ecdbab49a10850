//! Formats of boxes in a model's outputs.

use orinoco_core::Choice;

/// Format of a box's four values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoxForm {
    /// `x1, y1, x2, y2`.
    Corners,
    /// `centre x, centre y, width, height`.
    Center,
}

impl Choice for BoxForm {
    const ALL: &'static [Self] = &[Self::Corners, Self::Center];

    fn name(self) -> &'static str {
        match self {
            Self::Corners => "corners",
            Self::Center => "center",
        }
    }
}

/// Unit of a box's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoxUnit {
    /// Fractions of the model's input, 0 to 1.
    Fraction,
    /// Pixels of the model's input.
    Pixels,
}

impl Choice for BoxUnit {
    const ALL: &'static [Self] = &[Self::Fraction, Self::Pixels];

    fn name(self) -> &'static str {
        match self {
            Self::Fraction => "fraction",
            Self::Pixels => "pixels",
        }
    }
}
