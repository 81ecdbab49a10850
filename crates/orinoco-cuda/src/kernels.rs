//! The kernels compiled ahead (`kernels/compiled`), and which image of them a GPU takes.

use std::fmt;

/// A GPU's generation: compute capability, major and minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sm {
    /// 8 of 8.7.
    pub major: u32,
    /// 7 of 8.7.
    pub minor: u32,
}

impl Sm {
    /// The oldest that any image runs on: Xavier.
    pub const OLDEST: Self = Self { major: 7, minor: 2 };
}

impl fmt::Display for Sm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.major, self.minor)
    }
}

/// One kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of the kernels in kernels/*.cu")]
pub enum Kernel {
    Convert,
    DecodeRows,
    DecodeChannels,
    Classify,
    Suppress,
    PreprocessBilinear,
    PreprocessAntialias,
    Reduce,
}

impl Kernel {
    /// Every kernel, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Convert,
        Self::DecodeRows,
        Self::DecodeChannels,
        Self::Classify,
        Self::Suppress,
        Self::PreprocessBilinear,
        Self::PreprocessAntialias,
        Self::Reduce,
    ];

    /// Its name in its source.
    pub fn name(self) -> &'static str {
        match self {
            Self::Convert => "convert",
            Self::DecodeRows => "decode_rows",
            Self::DecodeChannels => "decode_channels",
            Self::Classify => "classify",
            Self::Suppress => "suppress",
            Self::PreprocessBilinear => "preprocess_bilinear",
            Self::PreprocessAntialias => "preprocess_antialias",
            Self::Reduce => "reduce",
        }
    }

    /// The source it is in, and so the index into [`SOURCES`].
    pub(crate) fn source(self) -> usize {
        match self {
            Self::Convert => 0,
            Self::DecodeRows | Self::DecodeChannels | Self::Classify => 1,
            Self::Suppress => 2,
            Self::PreprocessBilinear | Self::PreprocessAntialias => 3,
            Self::Reduce => 4,
        }
    }
}

/// A compiled source, as the driver loads it.
#[derive(Clone, Copy)]
pub struct Image {
    /// `sm_87`, or `compute_72` for PTX.
    pub target: &'static str,
    /// A cubin, or PTX with the zero byte that ends it.
    pub bytes: &'static [u8],
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes)", self.target, self.bytes.len())
    }
}

/// One source: its cubins, and PTX for every other GPU.
pub(crate) struct Source {
    pub(crate) name: &'static str,
    cubins: [(Sm, Image); 4],
    ptx: Image,
}

impl Source {
    /// The image for `sm`; `None` where the GPU is too old. A cubin runs on its own generation only: between Jetsons and
    /// other GPUs of one major version nothing is promised (CUDA C++ Programming Guide, "Binary Compatibility").
    pub(crate) fn image_for(&self, sm: Sm) -> Option<Image> {
        let cubin = self.cubins.iter().find(|(target, _)| *target == sm);
        cubin.map(|(_, image)| *image).or((sm >= Sm::OLDEST).then_some(self.ptx))
    }
}

macro_rules! compiled {
    ($name:literal, $kind:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/compiled/", $name, $kind))
    };
}

macro_rules! source {
    ($name:literal) => {{
        const fn cubin(major: u32, minor: u32, target: &'static str, bytes: &'static [u8]) -> (Sm, Image) {
            (Sm { major, minor }, Image { target, bytes })
        }
        Source {
            name: $name,
            cubins: [
                cubin(7, 2, "sm_72", compiled!($name, ".sm_72.cubin")),
                cubin(8, 7, "sm_87", compiled!($name, ".sm_87.cubin")),
                cubin(9, 0, "sm_90", compiled!($name, ".sm_90.cubin")),
                cubin(11, 0, "sm_110", compiled!($name, ".sm_110.cubin")),
            ],
            ptx: Image { target: "compute_72", bytes: compiled!($name, ".compute_72.ptx") },
        }
    }};
}

/// Every source; [`Kernel::source`] is the index.
pub(crate) static SOURCES: [Source; 5] =
    [source!("convert"), source!("heads"), source!("nms"), source!("preprocess"), source!("reduce")];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(major: u32, minor: u32, expected: Option<&str>) {
        for source in &SOURCES {
            let image = source.image_for(Sm { major, minor });
            assert_eq!(image.map(|image| image.target), expected, "{}", source.name);
        }
    }

    #[test]
    fn a_gpu_takes_its_own_cubin_or_ptx() {
        check(5, 3, None); // Nano
        check(6, 2, None); // TX2
        check(7, 2, Some("sm_72")); // Xavier
        check(7, 5, Some("compute_72"));
        check(8, 6, Some("compute_72"));
        check(8, 7, Some("sm_87")); // Orin
        check(9, 0, Some("sm_90"));
        check(11, 0, Some("sm_110")); // Thor
        check(12, 0, Some("compute_72"));
    }

    #[test]
    fn images_are_what_their_names_say_and_hold_their_kernels() {
        for source in &SOURCES {
            assert!(
                source.ptx.bytes.ends_with(b"\0"),
                "{}: the driver reads PTX up to a zero byte",
                source.name
            );
            let kernels =
                Kernel::ALL.into_iter().filter(|kernel| SOURCES[kernel.source()].name == source.name);
            let images: Vec<Image> =
                source.cubins.iter().map(|(_, image)| *image).chain([source.ptx]).collect();
            for kernel in kernels {
                for image in &images {
                    let name = kernel.name().as_bytes();
                    let named = image.bytes.windows(name.len()).any(|window| window == name);
                    assert!(named, "{} {image:?} has {}", source.name, kernel.name());
                }
            }
            let elf = source.cubins.iter().all(|(_, image)| image.bytes.starts_with(b"\x7fELF"));
            assert!(elf && source.ptx.bytes.starts_with(b"//"), "{}", source.name);
        }
    }
}
