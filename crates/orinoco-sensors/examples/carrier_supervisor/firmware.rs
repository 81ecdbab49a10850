//! Firmware for a Cortex-M without a board: its bus, pins and timer are stand-ins that a compiler cannot see through
//! (`black_box`), so that the image holds all of the supervisor and nothing of a board's crate. On a board, put the
//! HAL's types in their place.

use core::cell::RefCell;
use core::convert::Infallible;
use core::hint::black_box;

use cortex_m_rt::entry;
use embedded_hal::digital::{self, OutputPin};
use embedded_hal::i2c::{self, I2c, Operation};
use embedded_hal::pwm::{self, SetDutyCycle};
use embedded_hal_bus::i2c::RefCellDevice;
use orinoco_core::{Amperes, Celsius, Ohms, Watts};
use panic_halt as _;

use crate::supervisor::{Inputs, Limits, ModuleSignal, Supervisor};

/// Stand-in for a bus.
struct Bus;

impl i2c::ErrorType for Bus {
    type Error = i2c::ErrorKind;
}

impl I2c for Bus {
    fn transaction(&mut self, address: u8, operations: &mut [Operation<'_>]) -> Result<(), i2c::ErrorKind> {
        black_box(address);
        for operation in operations {
            black_box(operation);
        }
        black_box(Ok(()))
    }
}

/// Stand-in for a pin.
struct Pin;

impl digital::ErrorType for Pin {
    type Error = Infallible;
}

impl OutputPin for Pin {
    fn set_low(&mut self) -> Result<(), Infallible> {
        black_box(false);
        Ok(())
    }

    fn set_high(&mut self) -> Result<(), Infallible> {
        black_box(true);
        Ok(())
    }
}

/// Stand-in for a timer's PWM output.
struct Pwm;

impl pwm::ErrorType for Pwm {
    type Error = Infallible;
}

impl SetDutyCycle for Pwm {
    fn max_duty_cycle(&self) -> u16 {
        black_box(1_000)
    }

    fn set_duty_cycle(&mut self, duty: u16) -> Result<(), Infallible> {
        black_box(duty);
        Ok(())
    }
}

const LIMITS: Limits = Limits {
    shunts: [Ohms::from_milli(5); 3],
    power: Watts::from_units(60),
    current: Amperes::from_units(15),
    temperature: Celsius::from_units(85),
};

type BoardSupervisor = Supervisor<RefCellDevice<'static, Bus>, Pwm, Pin, Pin>;

#[entry]
fn main() -> ! {
    static mut BUS: RefCell<Bus> = RefCell::new(Bus);
    static mut SUPERVISOR: Option<BoardSupervisor> = None;
    let bus: &'static RefCell<Bus> = BUS;
    let buses = [RefCellDevice::new(bus), RefCellDevice::new(bus)];
    let supervisor = Supervisor::new(LIMITS, buses, Pwm, Pin, Pin).expect("the shunts are above zero");
    let supervisor = SUPERVISOR.insert(supervisor);
    let mut now_us = 0;
    loop {
        now_us = black_box(now_us + 10_000);
        let module = if black_box(true) { ModuleSignal::Alive } else { ModuleSignal::Silent };
        black_box(supervisor.poll(Inputs { now_us, fan_pulses: black_box(0), module }));
    }
}
