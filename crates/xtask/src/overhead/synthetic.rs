//! Synthetic board whose sensors the daemon reads: a machine without a power sensor would measure no energy, and so less work than
//! a board does.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Rails of an AGX Orin's or Orin Nano's INA3221, in the order of its channels.
const RAILS: [&str; 3] = ["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"];
/// Thermal zones of an Orin (L4T R36).
const ZONES: [&str; 5] = ["cpu-thermal", "gpu-thermal", "soc0-thermal", "soc1-thermal", "tj-thermal"];
/// Files of the machine itself that a board has as well.
const COPIED: [&str; 4] = ["proc/stat", "proc/meminfo", "proc/loadavg", "proc/uptime"];

/// Writes the files of the board to `folder`.
pub(super) fn write(folder: &Path) -> Result<()> {
    let put = |path: &str, text: &str| {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().expect("a folder"))?;
        fs::write(&path, format!("{text}\n")).with_context(|| format!("writing {}", path.display()))
    };
    let chip = "sys/class/hwmon/hwmon3";
    put(&format!("{chip}/name"), "ina3221")?;
    put(&format!("{chip}/update_interval"), "4")?;
    for (channel, label) in (1..).zip(RAILS) {
        put(&format!("{chip}/in{channel}_label"), label)?;
        put(&format!("{chip}/in{channel}_input"), "19000")?;
        put(&format!("{chip}/curr{channel}_input"), "264")?;
        put(&format!("{chip}/shunt{channel}_resistor"), "5000")?;
    }
    for (number, name) in ZONES.iter().enumerate() {
        let zone = format!("sys/class/thermal/thermal_zone{number}");
        put(&format!("{zone}/type"), name)?;
        put(&format!("{zone}/temp"), "48125")?;
    }
    for path in COPIED {
        let text =
            fs::read_to_string(Path::new("/").join(path)).with_context(|| format!("reading /{path}"))?;
        put(path, text.trim_end())?;
    }
    Ok(())
}
