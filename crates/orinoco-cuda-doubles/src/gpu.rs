//! The kernels on a GPU, for the same checks.
#![expect(unsafe_code, reason = "a table in memory of the test's own")]

use orinoco_cuda::{Device, DeviceArena, Launch, Span, Stream, TableLayout, TableSpan};

use crate::machine::Machine;

pub(crate) struct Gpu {
    device: Device,
    stream: Stream,
}

impl Gpu {
    pub(crate) fn open() -> Result<Self, String> {
        let device = Device::open(0).map_err(|why| why.reason)?;
        let stream = device.stream().expect("a stream on an open device");
        Ok(Self { device, stream })
    }
}

impl Machine for Gpu {
    fn name(&self) -> &'static str {
        "the GPU"
    }

    fn is_gpu(&self) -> bool {
        true
    }

    fn target(&self) -> &dyn Launch {
        &self.stream
    }

    fn place(&self, bytes: &[u8]) -> Span {
        let arena = DeviceArena::new(&self.device, bytes.len()).expect("little memory");
        self.stream.write(arena.whole(), bytes).expect("a copy");
        arena.whole().clone()
    }

    fn read(&self, span: &Span) -> Vec<u8> {
        let mut bytes = vec![0; span.bytes()];
        self.stream.read(span, &mut bytes).expect("the kernels ran, and a copy");
        bytes
    }

    fn table(&self, layout: &TableLayout, bytes: &[u8]) -> TableSpan {
        // SAFETY: the checks fill `bytes` by `layout`, and hold the frames until they are done.
        unsafe { TableSpan::foreign(self.place(bytes), layout) }
    }
}
