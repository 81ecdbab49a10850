//! Reads the rails of an INA3221 over `/dev/i2c-*`, on Linux:
//!
//! ```text
//! cargo run --release --package orinoco-sensors --example read_rails -- 1 0x40 5 5 5
//! ```
//!
//! The arguments are the number of the bus, the address of the chip, and the shunt resistors of its channels in
//! milliohms. `--smbus` before them is for adapters that have SMBus commands only. The kernel's own driver holds the chip
//! on a Jetson: unbind it first, because two programs must not set one chip up.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line")]

#[cfg(target_os = "linux")]
mod smbus;

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("read_rails: /dev/i2c-* exists on Linux only");
}

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match linux::read_rails(&arguments) {
        Ok(table) => {
            print!("{table}");
            std::process::ExitCode::SUCCESS
        }
        Err(fault) => {
            eprintln!("read_rails: {fault}");
            std::process::ExitCode::FAILURE
        }
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::error::Error;
    use std::path::Path;

    use embedded_hal::i2c::I2c;
    use linux_embedded_hal::I2cdev;
    use orinoco_core::Ohms;
    use orinoco_sensors::{Ina3221, ina3221::Channel};

    use crate::smbus::Smbus;

    const USAGE: &str = "usage: read_rails [--smbus] BUS ADDRESS SHUNT1 [SHUNT2 [SHUNT3]], as in `read_rails 1 0x40 5 5 5`: \
                         shunts in milliohms";

    /// Returns a line for each channel whose shunt is given.
    pub(crate) fn read_rails(arguments: &[String]) -> Result<String, Box<dyn Error>> {
        let (is_smbus, arguments) = match arguments {
            [option, rest @ ..] if option == "--smbus" => (true, rest),
            arguments => (false, arguments),
        };
        let (bus, address, shunts) = parse(arguments).ok_or(USAGE)?;
        let path = format!("/dev/i2c-{bus}");
        if is_smbus {
            return table(Smbus::new(Path::new(&path)), address, &shunts);
        }
        let device = I2cdev::new(&path).map_err(|fault| format!("opening {path}: {fault}"))?;
        table(device, address, &shunts)
    }

    fn table<B>(bus: B, address: u8, shunts: &[Ohms]) -> Result<String, Box<dyn Error>>
    where
        B: I2c,
        B::Error: Error + 'static,
    {
        // The driver wants a shunt for each channel; those of channels that are not read do not matter.
        let mut all = [Ohms::from_units(1); 3];
        all[..shunts.len()].copy_from_slice(shunts);
        let mut chip = Ina3221::new(bus, address, all)?;
        chip.probe()?;
        let mut table = String::new();
        for (channel, _) in Channel::ALL.into_iter().zip(shunts) {
            let reading = chip.read(channel)?;
            let number = channel.index() + 1;
            table += &format!(
                "channel {number}: {:.6} {:.6} {:.6}\n",
                reading.voltage,
                reading.current,
                reading.power()
            );
        }
        Ok(table)
    }

    fn parse(arguments: &[String]) -> Option<(u32, u8, Vec<Ohms>)> {
        let [bus, address, shunts @ ..] = arguments else { return None };
        let address = match address.strip_prefix("0x") {
            Some(digits) => u8::from_str_radix(digits, 16).ok()?,
            None => address.parse().ok()?,
        };
        let shunt = |text: &String| text.parse().ok().map(|milliohms: f64| Ohms::from_f64(milliohms / 1e3));
        let shunts = shunts.iter().map(shunt).collect::<Option<Vec<Ohms>>>()?;
        (1..=3).contains(&shunts.len()).then_some(())?;
        Some((bus.parse().ok()?, address, shunts))
    }
}
