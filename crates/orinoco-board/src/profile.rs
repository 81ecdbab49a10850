//! Profile: public knowledge of a kind of board. The report of a board about itself is a
//! [`Detection`](crate::Detection).

use orinoco_core::{Celsius, Choice, Ohms, Watts};

/// Public knowledge of a kind of board. What has no public source is absent, and never a guess.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Name, such as `orin-nano-8gb`: the name of the file without its extension.
    pub name: String,
    /// Kind of machine.
    pub kind: BoardKind,
    /// Description in one line.
    pub description: String,
    /// Modules that this profile describes. Only Jetsons have any.
    pub modules: Vec<Module>,
    /// Parts of names by which a device tree's model names one of these modules, in lower case: `orin nano`.
    pub model_names: Vec<String>,
    /// System on chip.
    pub soc: Option<Soc>,
    /// Computing performance and power range.
    pub performance: Option<Performance>,
    /// PCIe and Ethernet.
    pub connections: Option<Connections>,
    /// Power rails that sensors measure.
    pub rails: Vec<RailProfile>,
    /// Coverage of the rails.
    pub total: Option<TotalPower>,
    /// Thermal zones.
    pub thermal_zones: Vec<ThermalZoneProfile>,
    /// Nodes of devfreq: clocks of units other than the CPU.
    pub devfreq: Vec<DevfreqNode>,
    /// Power modes of `nvpmodel`.
    pub power_modes: Vec<PowerModeProfile>,
    /// Public sources to which the parts of the profile refer.
    pub sources: Vec<Source>,
}

/// Kind of machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoardKind {
    /// An NVIDIA Jetson module on a carrier.
    Jetson,
    /// An Arm server (Server Base System Architecture) with an NVIDIA GPU.
    Sbsa,
    /// A development host.
    Host,
    /// An emulated board.
    Virtual,
}

impl Choice for BoardKind {
    const ALL: &'static [Self] = &[Self::Jetson, Self::Sbsa, Self::Host, Self::Virtual];

    fn name(self) -> &'static str {
        match self {
            Self::Jetson => "jetson",
            Self::Sbsa => "sbsa",
            Self::Host => "host",
            Self::Virtual => "virtual",
        }
    }
}

/// Module of a Jetson.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Part number with its SKU, such as `p3767-0005`.
    pub sku: String,
    /// Name, such as `Jetson Orin Nano 8GB`.
    pub name: String,
    /// Memory in GiB.
    pub memory_gib: u32,
    /// Name of the source.
    pub source: String,
}

impl Module {
    /// Returns the part number without the SKU: `p3767`.
    pub fn part(&self) -> &str {
        self.sku.split('-').next().unwrap_or_default()
    }
}

/// System on chip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Soc {
    /// Name as in device trees, such as `tegra234`.
    pub name: String,
    /// Type of the CPU cores.
    pub cpu: Option<String>,
    /// CPU cores of the module.
    pub cpu_cores: Option<u32>,
    /// GPU architecture.
    pub gpu: Option<String>,
    /// Compute capability of the GPU, times 10: 87 for 8.7.
    pub sm: Option<u32>,
    /// CUDA cores.
    pub cuda_cores: Option<u32>,
    /// Deep-learning accelerators (NVDLA).
    pub dla: Option<u32>,
    /// Codec engines: `nvdec`, `nvenc`, `nvjpg`.
    pub codecs: Vec<String>,
    /// Name of the source.
    pub source: String,
}

/// Computing performance and power range, as published.
#[derive(Clone, Debug, PartialEq)]
pub struct Performance {
    /// Peak rate, in units of `unit`.
    pub peak: Option<f64>,
    /// Peak rate in Super modes, in units of `unit`.
    pub peak_super: Option<f64>,
    /// Unit and condition of the peak rates, such as `INT8 TOPS, sparse`.
    pub unit: String,
    /// Lowest power budget.
    pub power_min: Option<Watts>,
    /// Highest power budget.
    pub power_max: Option<Watts>,
    /// Highest power budget in Super modes.
    pub power_max_super: Option<Watts>,
    /// Name of the source.
    pub source: String,
}

/// PCIe and Ethernet, as published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connections {
    /// PCIe controllers with lanes and generation.
    pub pcie: Option<String>,
    /// Ethernet controllers with their rate.
    pub ethernet: Option<String>,
    /// Name of the source.
    pub source: String,
}

/// Power rail that a sensor measures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RailProfile {
    /// Name, such as `VDD_IN`.
    pub name: String,
    /// Sensor, such as `ina3221`.
    pub chip: String,
    /// I2C bus number as Linux counts it. Absent where it is not fixed.
    pub bus: Option<u32>,
    /// I2C address.
    pub address: u8,
    /// Channel of the sensor, from 1.
    pub channel: u32,
    /// Shunt resistor.
    pub shunt: Option<Ohms>,
    /// Whether the driver gives no label, so that the name is known from here only.
    pub is_unlabelled: bool,
    /// Rail of the profile whose power contains that of this one. Absent where none does.
    pub included_in: Option<String>,
    /// Name of the source.
    pub source: String,
}

/// Coverage of the rails of a board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TotalPower {
    /// Rail that measures the whole input. Absent where none does.
    pub rail: Option<String>,
    /// Coverage of that rail; where there is none, the parts that the rails leave out.
    pub covers: String,
    /// Name of the source.
    pub source: String,
}

/// Thermal zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThermalZoneProfile {
    /// Type of the zone, such as `cpu-thermal`.
    pub name: String,
    /// Type of the zone in other releases, such as `CPU-therm`.
    pub other_names: Vec<String>,
    /// Trip points in ascending order of temperature.
    pub trips: Vec<TripPoint>,
    /// Name of the source.
    pub source: String,
}

/// Temperature at which the kernel acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TripPoint {
    /// Kind: `active` (fan), `passive` (throttling), `hot` or `critical` (shutdown).
    pub kind: TripKind,
    /// Temperature.
    pub temperature: Celsius,
}

/// Kind of a trip point, as the kernel's thermal framework names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TripKind {
    /// A cooling device, mostly a fan, is switched.
    Active,
    /// Clocks are lowered.
    Passive,
    /// The driver is notified.
    Hot,
    /// The board is shut down.
    Critical,
}

impl Choice for TripKind {
    const ALL: &'static [Self] = &[Self::Active, Self::Passive, Self::Hot, Self::Critical];

    fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Passive => "passive",
            Self::Hot => "hot",
            Self::Critical => "critical",
        }
    }
}

/// Node of devfreq.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevfreqNode {
    /// Unit whose clock it controls: `gpu`, or `emc` for the memory.
    pub unit: String,
    /// Name under `/sys/class/devfreq`.
    pub node: String,
    /// Name of the source.
    pub source: String,
}

/// Power mode of `nvpmodel`. A mode is known by its name: the number differs between modules and makers.
#[derive(Clone, Debug, PartialEq)]
pub struct PowerModeProfile {
    /// Name, such as `MAXN_SUPER`.
    pub name: String,
    /// Number in NVIDIA's configuration file. It is a hint only.
    pub id_hint: Option<u32>,
    /// Whether it belongs to the Super configuration.
    pub is_super: bool,
    /// Power budget. Absent for modes without one.
    pub budget: Option<Watts>,
    /// CPU cores that are online.
    pub cpu_cores: Option<u32>,
    /// Highest CPU clock in MHz. Absent where the mode does not limit it.
    pub cpu_mhz: Option<f64>,
    /// Highest GPU clock in MHz. Absent where the mode does not limit it.
    pub gpu_mhz: Option<f64>,
    /// Mask of the GPU's units that are switched off (`TPC_PG_MASK`).
    pub gpu_mask: Option<u32>,
    /// Name of the source.
    pub source: String,
}

/// Public source of parts of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Name by which the parts refer to it.
    pub name: String,
    /// Title or path of the document.
    pub text: String,
}

impl Profile {
    /// Returns the module with this SKU, such as `p3767-0005`.
    pub fn module(&self, sku: &str) -> Option<&Module> {
        self.modules.iter().find(|module| module.sku == sku)
    }
}

impl PowerModeProfile {
    /// Returns whether a change to another mode needs a reboot: `nvpmodel` cannot switch units of the GPU on or off while it
    /// runs ("Golden image context is already created"). `None` where the masks of the two modes are not both known.
    pub fn needs_reboot_to(&self, other: &Self) -> Option<bool> {
        Some(self.gpu_mask? != other.gpu_mask?)
    }
}
