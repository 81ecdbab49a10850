/// Payload of a packet: 1 to 5 for 256 to 4096 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mtu(u8);

impl Mtu {
    /// The MTU with a code of the InfiniBand architecture.
    pub fn from_code(code: u8) -> Option<Self> {
        (1..=5).contains(&code).then_some(Self(code))
    }

    /// Its code.
    pub fn code(self) -> u8 {
        self.0
    }

    /// Largest payload of a packet, in bytes.
    pub fn bytes(self) -> u32 {
        128 << self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mtu_is_in_bytes() {
        assert_eq!([1, 5].map(|code| Mtu(code).bytes()), [256, 4096]);
        assert_eq!([0, 6, 255].map(Mtu::from_code), [None; 3]);
    }
}
