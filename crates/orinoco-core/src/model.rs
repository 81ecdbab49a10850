//! Settings of models that are the same for a board file, a model file, the CPU's algorithms and the kernels.

use crate::Choice;

/// Order of a model's colour channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColorOrder {
    /// Red, green, blue.
    Rgb,
    /// Blue, green, red.
    Bgr,
    /// Luma only: one channel.
    Gray,
}

impl ColorOrder {
    /// Returns the number of channels.
    pub fn channels(self) -> usize {
        if self == Self::Gray { 1 } else { 3 }
    }
}

impl Choice for ColorOrder {
    const ALL: &'static [Self] = &[Self::Rgb, Self::Bgr, Self::Gray];

    fn name(self) -> &'static str {
        match self {
            Self::Rgb => "RGB",
            Self::Bgr => "BGR",
            Self::Gray => "GRAY",
        }
    }
}

/// Filter that resizes frames to the model's input size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resize {
    /// Two taps in each direction, at any scale: OpenCV's `INTER_LINEAR`.
    Bilinear,
    /// A triangle filter as wide as the scale: Pillow's `BILINEAR`, PyTorch's `antialias=True`.
    BilinearAntialias,
}

impl Choice for Resize {
    const ALL: &'static [Self] = &[Self::Bilinear, Self::BilinearAntialias];

    fn name(self) -> &'static str {
        match self {
            Self::Bilinear => "bilinear",
            Self::BilinearAntialias => "bilinear-antialias",
        }
    }
}

/// Function that turns class values into probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// No function where the values already are probabilities, else softmax.
    Auto,
    /// No function: the values already are probabilities.
    None,
    /// Softmax.
    Softmax,
    /// Logistic function of each class by itself.
    Sigmoid,
}

impl Choice for Activation {
    const ALL: &'static [Self] = &[Self::Auto, Self::None, Self::Softmax, Self::Sigmoid];

    fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::None => "none",
            Self::Softmax => "softmax",
            Self::Sigmoid => "sigmoid",
        }
    }
}

#[cfg(all(test, feature = "alloc"))]
mod tests {
    use super::*;
    use crate::Layout;
    use alloc::vec::Vec;

    #[test]
    fn names_are_those_of_files() {
        fn check<T: Choice + PartialEq + core::fmt::Debug>(expected: &[&str]) {
            let names: Vec<&str> = T::ALL.iter().map(|value| value.name()).collect();
            assert_eq!(names, expected);
            for value in T::ALL {
                assert_eq!(T::from_name(value.name()), Some(*value));
            }
            assert_eq!(T::from_name("no such"), None);
        }
        check::<ColorOrder>(&["RGB", "BGR", "GRAY"]);
        check::<Resize>(&["bilinear", "bilinear-antialias"]);
        check::<Activation>(&["auto", "none", "softmax", "sigmoid"]);
        check::<Layout>(&["NCHW", "NHWC"]);
    }
}
