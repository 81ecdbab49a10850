//! Processor, memory, kernel and firmware of any machine that runs Linux.

use super::fact::Fact;
use super::files::{BoardFiles, shown};

const CPU_INFO: &str = "/proc/cpuinfo";
const MEMORY_INFO: &str = "/proc/meminfo";
const CPU_FOLDER: &str = "/sys/devices/system/cpu";
const DMI_FOLDER: &str = "/sys/class/dmi/id";
const GPU_FOLDER: &str = "/proc/driver/nvidia/gpus";
const ACPI_TABLES: &str = "/sys/firmware/acpi/tables";
/// Greatest number of CPU cores that a list may name; the kernel's is 8192 (`NR_CPUS` of x86).
const CPUS_MAX: u64 = 8192;
/// Greatest memory that is believed, in KiB: 1 PiB.
const MEMORY_KIB_MAX: u64 = 1 << 40;

/// Instruction set of the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Architecture {
    Arm,
    X86,
}

/// Facts that every machine has.
#[derive(Debug, Default)]
pub(super) struct Machine {
    pub(super) architecture: Option<Fact<Architecture>>,
    /// Memory that the kernel manages, in bytes. It is less than what is soldered on the module.
    pub(super) memory_bytes: Option<Fact<u64>>,
    /// CPU cores that the kernel may bring online.
    pub(super) cpus: Option<Fact<u32>>,
    /// CPU cores that are online.
    pub(super) cpus_online: Option<Fact<u32>>,
    /// Release of the kernel.
    pub(super) kernel: Option<Fact<String>>,
    /// Vendor and product from the SMBIOS tables.
    pub(super) product: Option<Fact<String>>,
    /// NVIDIA GPUs that the driver lists.
    pub(super) gpus: Vec<Fact<String>>,
    /// Whether the firmware describes the machine by ACPI.
    pub(super) has_acpi: bool,
}

impl Machine {
    pub(super) fn read(files: &BoardFiles<'_>) -> Self {
        Self {
            architecture: architecture(files),
            memory_bytes: memory_bytes(files),
            cpus: cpu_count(files, "cpus", "possible").or_else(|| cpu_count(files, "cpus", "present")),
            cpus_online: cpu_count(files, "cpus_online", "online"),
            kernel: kernel(files),
            product: product(files),
            gpus: gpus(files),
            has_acpi: !files.optional_entries(ACPI_TABLES).is_empty(),
        }
    }
}

/// Returns the instruction set, by the keys that only one architecture's `/proc/cpuinfo` has.
fn architecture(files: &BoardFiles<'_>) -> Option<Fact<Architecture>> {
    let text = files.text("is_jetson", CPU_INFO)?.value;
    let has = |key: &str| text.lines().any(|line| line.starts_with(key));
    let found = match (has("CPU implementer"), has("vendor_id")) {
        (true, false) => Architecture::Arm,
        (false, true) => Architecture::X86,
        _ => return None,
    };
    Some(Fact::new(found, CPU_INFO))
}

fn memory_bytes(files: &BoardFiles<'_>) -> Option<Fact<u64>> {
    let text = files.text("memory_gb", MEMORY_INFO)?.value;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    match kib {
        Some(kib @ 1..=MEMORY_KIB_MAX) => Some(Fact::new(kib * 1024, MEMORY_INFO)),
        _ => {
            let line =
                line.map_or_else(|| "no MemTotal".to_owned(), |line| format!("MemTotal:{}", shown(line)));
            files.note("memory_gb", MEMORY_INFO, format!("gives no size: {line}"));
            None
        }
    }
}

fn cpu_count(files: &BoardFiles<'_>, key: &'static str, list: &str) -> Option<Fact<u32>> {
    let list = files.text(key, &format!("{CPU_FOLDER}/{list}"))?;
    let count = count_of_list(&list.value);
    if count.is_none() {
        files.note(key, &list.source, format!("is no list of CPUs: {}", shown(&list.value)));
    }
    Some(Fact::new(count?, list.source))
}

/// Counts the CPUs of a list such as `0-3,6` (cpuset(7), List Format).
fn count_of_list(text: &str) -> Option<u32> {
    let mut count = 0;
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if last < first || last >= CPUS_MAX {
            return None;
        }
        count += last - first + 1;
    }
    u32::try_from(count).ok().filter(|count| u64::from(*count) <= CPUS_MAX)
}

fn kernel(files: &BoardFiles<'_>) -> Option<Fact<String>> {
    let release = files.text("kernel", "/proc/sys/kernel/osrelease");
    let release = release.or_else(|| {
        let version = files.text("kernel", "/proc/version")?;
        let third = version.value.split_whitespace().nth(2)?.to_owned();
        Some(Fact::new(third, version.source))
    });
    release.map(|release| release.map(|text| shown(&text)))
}

fn product(files: &BoardFiles<'_>) -> Option<Fact<String>> {
    let path = format!("{DMI_FOLDER}/product_name");
    let name = files.optional_text(&path)?;
    let vendor = files.optional_text(&format!("{DMI_FOLDER}/sys_vendor")).unwrap_or_default();
    let text = if name.starts_with(&vendor) { name } else { format!("{vendor} {name}") };
    Some(Fact::new(text, path))
}

fn gpus(files: &BoardFiles<'_>) -> Vec<Fact<String>> {
    let names = files.optional_entries(GPU_FOLDER).into_iter().filter_map(|entry| {
        let path = format!("{GPU_FOLDER}/{entry}/information");
        let text = files.text("gpus", &path)?.value;
        let name = text.lines().find_map(|line| line.strip_prefix("Model:"))?;
        Some(Fact::new(shown(name), path))
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::count_of_list;

    #[test]
    fn lists_of_cpus_are_counted() {
        for (text, count) in [
            ("0-11", Some(12)),
            ("0", Some(1)),
            ("0-3,6", Some(5)),
            ("0,2,4", Some(3)),
            ("", None),
            ("3-0", None),
            ("0-99999999999999999999", None),
            ("0-8191,0-8191", None),
            ("a-b", None),
        ] {
            assert_eq!(count_of_list(text), count, "{text}");
        }
    }
}
