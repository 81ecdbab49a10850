//! Reports of `orinoco board`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Schema name of [`BoardReport`].
pub const BOARD_SCHEMA: &str = "orinoco.board/1";
/// Schema name of [`BoardProfileList`].
pub const BOARD_PROFILES_SCHEMA: &str = "orinoco.board-profiles/1";
/// Schema name of [`BoardProfileReport`].
pub const BOARD_PROFILE_SCHEMA: &str = "orinoco.board-profile/1";

/// Board as its files describe it. What no file says is null, and its key is in `unknown`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BoardReport {
    /// Name and version of this contract.
    #[schemars(extend("const" = BOARD_SCHEMA))]
    pub schema: String,
    /// Whether it is an NVIDIA Jetson.
    pub is_jetson: Option<bool>,
    /// Name that the firmware gives the board.
    pub model: Option<String>,
    /// Module, such as `Jetson Orin Nano 8GB`.
    pub module: Option<String>,
    /// System on chip, such as `tegra234`.
    pub soc: Option<String>,
    /// Part number of the module with its SKU, such as `p3767-0005`.
    pub sku: Option<String>,
    /// Carrier: NVIDIA's part number, or another maker's name for it.
    pub carrier: Option<String>,
    /// Memory in GiB: of a Jetson that of the module, else what the kernel manages.
    pub memory_gb: Option<f64>,
    /// Memory in bytes that the kernel manages.
    pub memory_bytes: Option<u64>,
    /// CPU cores that can be online.
    pub cpus: Option<u32>,
    /// CPU cores that are online.
    pub cpus_online: Option<u32>,
    /// Release of Jetson Linux of the root file system, such as `36.4.3`.
    pub l4t: Option<String>,
    /// Release of Jetson Linux of the boot loader.
    pub boot_loader: Option<String>,
    /// JetPack release that contains the release of Jetson Linux.
    pub jetpack: Option<String>,
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// Name of the power mode that is set.
    pub power_mode: Option<String>,
    /// Number of the power mode that is set. It means something on this board only.
    pub power_mode_id: Option<u32>,
    /// Power modes that the board's configuration offers.
    pub power_modes: Vec<PowerModeJson>,
    /// Power rails with one reading each.
    pub rails: Vec<RailJson>,
    /// Energy counters of a host's processor.
    #[serde(default)]
    pub energy_counters: Vec<EnergyCounterJson>,
    /// Name of the rail that measures the whole input.
    pub total_rail: Option<String>,
    /// Coverage of that rail, or the reason why there is none.
    pub total_covers: Option<String>,
    /// Thermal zones with one reading each.
    pub thermal_zones: Vec<ThermalZoneJson>,
    /// NVIDIA GPUs that the driver lists.
    pub gpus: Vec<String>,
    /// Name of the profile of this kind of board.
    pub profile: Option<String>,
    /// Contradictions, each with the files and what they say.
    pub conflicts: Vec<String>,
    /// Keys whose values are not known.
    pub unknown: Vec<String>,
    /// Files that were wrong, and files whose absence leaves a value unknown.
    pub problems: Vec<BoardProblem>,
    /// File, or several that decide together, from which each known value was read.
    pub sources: BTreeMap<String, String>,
}

/// Power mode of `nvpmodel`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PowerModeJson {
    /// Number in the board's configuration.
    pub id: u32,
    /// Name, such as `MAXN_SUPER`.
    pub name: String,
}

/// Energy counter of a processor (RAPL).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EnergyCounterJson {
    /// Part of the processor that it counts, such as `package-0` or `package-0/core`.
    pub name: String,
    /// Reason why it cannot be read; null where it can.
    pub unavailable: Option<String>,
    /// Folder of the counter on the board.
    pub source: String,
}

/// Power rail with one reading. What the sensor does not give is null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RailJson {
    /// Name by the driver's label, or by the profile where the driver has none.
    pub name: Option<String>,
    /// Sensor, such as `ina3221`.
    pub chip: String,
    /// Bus and address of the sensor, such as `1-0040`.
    pub i2c: Option<String>,
    /// Channel of the sensor, from 1.
    pub channel: u32,
    /// Voltage in millivolts.
    pub mv: Option<i64>,
    /// Current in milliamperes.
    pub ma: Option<i64>,
    /// Power in milliwatts.
    pub mw: Option<i64>,
    /// Current in milliamperes above which the sensor warns; null where nobody set any.
    pub warning_ma: Option<i64>,
    /// Current in milliamperes above which the sensor reports a critical state; null where nobody set any.
    pub critical_ma: Option<i64>,
    /// Reason why voltage, current or power is missing.
    pub unavailable: Option<String>,
    /// Folder of the sensor's values on the board.
    pub source: String,
}

/// Thermal zone with one reading.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThermalZoneJson {
    /// Type of the zone, such as `cpu-thermal`.
    pub name: String,
    /// Temperature in degrees Celsius.
    pub celsius: Option<f64>,
    /// Reason why there is no temperature.
    pub unavailable: Option<String>,
    /// Path of the zone's temperature on the board.
    pub source: String,
}

/// File that gave no value, or a wrong one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BoardProblem {
    /// Key of the value for which the file was read.
    pub key: String,
    /// Path on the board.
    pub path: String,
    /// Cause, such as `does not exist`.
    pub cause: String,
}

/// Profiles of boards that this binary has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BoardProfileList {
    /// Name and version of this contract.
    #[schemars(extend("const" = BOARD_PROFILES_SCHEMA))]
    pub schema: String,
    /// Profiles, newest boards first.
    pub profiles: Vec<ListedBoardProfile>,
}

/// Profile in a list. What has no public source is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ListedBoardProfile {
    /// Name, such as `orin-nano-8gb`.
    pub name: String,
    /// Kind of machine: `jetson`, `sbsa`, `host` or `virtual`.
    pub kind: String,
    /// Description in one line.
    pub description: String,
    /// Part numbers of the modules with their SKUs.
    pub skus: Vec<String>,
    /// Sizes of memory with which the modules come, in GiB.
    pub memory_gb: Vec<u32>,
    /// Peak rate, in units of `peak_unit`.
    pub peak: Option<f64>,
    /// Peak rate in Super modes, in units of `peak_unit`.
    pub peak_super: Option<f64>,
    /// Unit and condition of the peak rates.
    pub peak_unit: Option<String>,
    /// Lowest power budget in watts.
    pub power_min_w: Option<f64>,
    /// Highest power budget in watts.
    pub power_max_w: Option<f64>,
    /// Highest power budget in Super modes in watts.
    pub power_max_super_w: Option<f64>,
}

/// One profile with its sources.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BoardProfileReport {
    /// Name and version of this contract.
    #[schemars(extend("const" = BOARD_PROFILE_SCHEMA))]
    pub schema: String,
    /// Profile.
    pub profile: BoardProfileJson,
}

/// Public knowledge of a kind of board. What has no public source is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BoardProfileJson {
    /// Name, such as `orin-nano-8gb`.
    pub name: String,
    /// Kind of machine: `jetson`, `sbsa`, `host` or `virtual`.
    pub kind: String,
    /// Description in one line.
    pub description: String,
    /// Modules that the profile describes.
    pub modules: Vec<ProfileModuleJson>,
    /// System on chip, such as `tegra234`.
    pub soc: Option<String>,
    /// Type of the CPU cores.
    pub cpu: Option<String>,
    /// CPU cores.
    pub cpu_cores: Option<u32>,
    /// GPU architecture.
    pub gpu: Option<String>,
    /// Compute capability of the GPU, times 10.
    pub sm: Option<u32>,
    /// CUDA cores.
    pub cuda_cores: Option<u32>,
    /// Deep-learning accelerators (NVDLA).
    pub dla: Option<u32>,
    /// Codec engines.
    pub codecs: Vec<String>,
    /// Peak rate, in units of `peak_unit`.
    pub peak: Option<f64>,
    /// Peak rate in Super modes, in units of `peak_unit`.
    pub peak_super: Option<f64>,
    /// Unit and condition of the peak rates.
    pub peak_unit: Option<String>,
    /// Lowest power budget in watts.
    pub power_min_w: Option<f64>,
    /// Highest power budget in watts.
    pub power_max_w: Option<f64>,
    /// Highest power budget in Super modes in watts.
    pub power_max_super_w: Option<f64>,
    /// PCIe controllers.
    pub pcie: Option<String>,
    /// Ethernet controllers.
    pub ethernet: Option<String>,
    /// Power rails that sensors measure.
    pub rails: Vec<ProfileRailJson>,
    /// Name of the rail that measures the whole input.
    pub total_rail: Option<String>,
    /// Coverage of that rail, or the parts that the rails leave out.
    pub total_covers: Option<String>,
    /// Thermal zones.
    pub thermal_zones: Vec<ProfileZoneJson>,
    /// Nodes of devfreq.
    pub devfreq: Vec<ProfileDevfreqJson>,
    /// Power modes of `nvpmodel`. A change between modes with different `gpu_mask` needs a reboot.
    pub power_modes: Vec<ProfilePowerModeJson>,
    /// Name of the source of `soc` to `codecs`, of `peak` to `power_max_super_w`, of `pcie` and `ethernet`, and of the total.
    pub source_of: BTreeMap<String, String>,
    /// Sources by name.
    pub sources: BTreeMap<String, String>,
}

/// Module of a profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProfileModuleJson {
    /// Part number with its SKU.
    pub sku: String,
    /// Name.
    pub name: String,
    /// Memory in GiB.
    pub memory_gb: u32,
    /// Name of the source.
    pub source: String,
}

/// Power rail of a profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProfileRailJson {
    /// Name.
    pub name: String,
    /// Sensor.
    pub chip: String,
    /// I2C bus number as Linux counts it; null where it is not fixed.
    pub bus: Option<u32>,
    /// I2C address.
    pub address: u8,
    /// Channel of the sensor, from 1.
    pub channel: u32,
    /// Shunt resistor in microohms.
    pub shunt_micro_ohms: Option<i64>,
    /// Whether the driver gives no label.
    pub unlabelled: bool,
    /// Rail whose power contains that of this one; null where none does.
    #[serde(default)]
    pub included_in: Option<String>,
    /// Name of the source.
    pub source: String,
}

/// Thermal zone of a profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProfileZoneJson {
    /// Type of the zone.
    pub name: String,
    /// Type of the zone in other releases.
    pub other_names: Vec<String>,
    /// Trip points in ascending order of temperature.
    pub trips: Vec<ProfileTripJson>,
    /// Name of the source.
    pub source: String,
}

/// Trip point of a thermal zone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProfileTripJson {
    /// Kind: `active`, `passive`, `hot` or `critical`.
    pub kind: String,
    /// Temperature in degrees Celsius.
    pub celsius: f64,
}

/// Node of devfreq of a profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProfileDevfreqJson {
    /// Unit whose clock it controls.
    pub unit: String,
    /// Name under `/sys/class/devfreq`.
    pub node: String,
    /// Name of the source.
    pub source: String,
}

/// Power mode of a profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProfilePowerModeJson {
    /// Name.
    pub name: String,
    /// Number in NVIDIA's configuration file: a hint only.
    pub id: Option<u32>,
    /// Whether it belongs to the Super configuration.
    #[serde(rename = "super")]
    pub is_super: bool,
    /// Power budget in watts; null for modes without one.
    pub watts: Option<f64>,
    /// CPU cores that are online.
    pub cpu_cores: Option<u32>,
    /// Highest CPU clock in MHz; null where the mode does not limit it.
    pub cpu_mhz: Option<f64>,
    /// Highest GPU clock in MHz; null where the mode does not limit it.
    pub gpu_mhz: Option<f64>,
    /// Mask of the GPU's units that are switched off.
    pub gpu_mask: Option<u32>,
    /// Name of the source.
    pub source: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_null_and_not_left_out() {
        let rail = RailJson {
            name: None,
            chip: "ina238".to_owned(),
            i2c: Some("2-0044".to_owned()),
            channel: 1,
            mv: Some(19_700),
            ma: None,
            mw: None,
            warning_ma: None,
            critical_ma: None,
            unavailable: Some("current: has no value at present".to_owned()),
            source: "/sys/class/hwmon/hwmon5".to_owned(),
        };
        assert_eq!(
            serde_json::to_string(&rail).expect("serialises"),
            r#"{"name":null,"chip":"ina238","i2c":"2-0044","channel":1,"mv":19700,"ma":null,"mw":null,"warning_ma":null,"critical_ma":null,"unavailable":"current: has no value at present","source":"/sys/class/hwmon/hwmon5"}"#
        );
    }
}
