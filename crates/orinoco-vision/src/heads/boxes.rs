//! How boxes are written in a model's outputs.

use orinoco_core::Choice;

/// How a box is written.
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

/// The unit of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoxUnit {
    /// 0 to 1 of the model's input.
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
