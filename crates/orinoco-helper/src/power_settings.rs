//! The settings that are written, and their restoring.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use orinoco_api::helper::{
    Answer, ClockState, ModeState, PowerState, Refusal, RefusalReason, Request, SavedClock, SavedState,
};
use orinoco_board::power::{ClockDomain, NvpModes, clock_domains};
use orinoco_sysroot::Sysroot;
use rustix::fs::OFlags;

use crate::nvpmodel;
use crate::protocol::{PROTOCOL_VERSION, parse, refusal};
use crate::saved;

/// Power settings of a board: reads what is set, sets what the board lists, and restores what was there.
#[derive(Debug)]
pub struct PowerSettings {
    sysroot: Sysroot,
    /// Highest clock that may be set in a domain: what the power mode or the administrator has set. Until the first change, and for
    /// domains that were throttled after a change of the power mode, it is what their file holds, once nothing throttles them.
    ceilings: BTreeMap<String, u64>,
}

/// Settings that could not be restored. The state file stays, so that another attempt is made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("restoring the power settings: {}", self.0.join("; "))]
pub struct RestoreError(Vec<String>);

impl PowerSettings {
    /// Creates the settings of the board of `sysroot`. Nothing is read yet.
    pub fn new(sysroot: Sysroot) -> Self {
        Self { sysroot, ceilings: BTreeMap::new() }
    }

    /// Answers a request, given as a line without its new line.
    pub fn answer(&mut self, line: &[u8]) -> Answer {
        let done = parse(line).and_then(|request| self.carry_out(&request));
        match done {
            Ok(()) => Answer::Done(self.state()),
            Err(refusal) => Answer::Refused(refusal),
        }
    }

    /// Returns what is set, and what can be set.
    pub fn state(&self) -> PowerState {
        // A file that cannot be read is one that something wrote.
        let is_changed = saved::read(&self.sysroot).map_or(true, |saved| saved.is_some());
        let domains = clock_domains(&self.sysroot);
        let mut throttling = domains.iter().filter_map(|domain| domain.throttled_by(&self.sysroot));
        let blocked_by = if is_changed { None } else { throttling.next() };
        let modes = NvpModes::read(&self.sysroot).unwrap_or_default();
        let mode = |mode: &orinoco_board::power::NvpMode| ModeState {
            name: mode.name.clone(),
            is_current: modes.current() == Some(mode),
            can_be_set: blocked_by.is_none()
                && modes.current().is_some_and(|current| !current.needs_reboot_to(mode)),
        };
        let clocks = domains.iter().filter(|_| blocked_by.is_none()).filter_map(|domain| {
            let max = domain.max(&self.sysroot).ok()?;
            let ceiling = self.ceiling(domain).ok()?;
            let available = domain.available.iter().copied().filter(|clock| *clock <= ceiling).collect();
            Some(ClockState { domain: domain.name.clone(), max, available })
        });
        PowerState {
            version: PROTOCOL_VERSION,
            power_modes: modes.modes.iter().map(mode).collect(),
            clocks: clocks.collect(),
            is_changed,
            blocked_by,
        }
    }

    /// Returns the highest clock that may be set in a domain: as noted, else as its file says, unless the kernel throttles.
    fn ceiling(&self, domain: &ClockDomain) -> Result<u64, Refusal> {
        match self.ceilings.get(&domain.name) {
            Some(ceiling) => Ok(*ceiling),
            None => self.limit_set(domain),
        }
    }

    /// Reads the highest clock that a user or the power mode has set, which the file does not tell while the kernel throttles.
    fn limit_set(&self, domain: &ClockDomain) -> Result<u64, Refusal> {
        let before = domain.throttled_by(&self.sysroot);
        let limit = domain.max(&self.sysroot).map_err(|why| failed(why.to_string()))?;
        match before.or_else(|| domain.throttled_by(&self.sysroot)) {
            None => Ok(limit),
            Some(device) => {
                let text = format!(
                    "the kernel is throttling {} (cooling device {device}), which hides the limit that is set, so it could not be restored later",
                    domain.name
                );
                Err(refusal(RefusalReason::Throttled, text))
            }
        }
    }

    /// Notes the limits of domains that have none noted, as far as they can be read.
    fn note_ceilings(&mut self) {
        for domain in clock_domains(&self.sysroot) {
            if let Ok(ceiling) = self.ceiling(&domain) {
                self.ceilings.insert(domain.name, ceiling);
            }
        }
    }

    fn carry_out(&mut self, request: &Request) -> Result<(), Refusal> {
        match request {
            Request::Status {} => Ok(()),
            Request::SetPowerMode { name } => self.set_power_mode(name),
            Request::SetClock { domain, hertz } => self.set_clock(domain, *hertz),
            Request::Restore {} => self.restore().map_err(|why| failed(why.to_string())),
        }
    }

    fn set_power_mode(&mut self, name: &str) -> Result<(), Refusal> {
        let modes = NvpModes::read(&self.sysroot).map_err(|why| not_listed(why.to_string()))?;
        let wanted =
            modes.named(name).ok_or_else(|| not_listed("the board lists no power mode with this name"))?;
        let current =
            modes.current().ok_or_else(|| not_listed("the power mode that is set now is not known"))?;
        if current.needs_reboot_to(wanted) {
            let text = format!("a change from {} to {} needs a reboot", current.name, wanted.name);
            return Err(refusal(RefusalReason::NeedsReboot, text));
        }
        if current == wanted {
            return Ok(());
        }
        self.save()?;
        nvpmodel::set_mode(&self.sysroot, wanted.id).map_err(failed)?;
        // The mode has set clocks of its own, which are the highest that are allowed now.
        self.ceilings.clear();
        self.note_ceilings();
        let set = NvpModes::read(&self.sysroot).map_err(|why| failed(why.to_string()))?;
        match set.current().map(|mode| mode.name.as_str()) {
            Some(set) if set == name => Ok(()),
            _ => Err(failed(format!("nvpmodel reported success, but power mode {name} is not active"))),
        }
    }

    fn set_clock(&mut self, name: &str, hertz: u64) -> Result<(), Refusal> {
        let domains = clock_domains(&self.sysroot);
        let domain = domains.iter().find(|domain| domain.name == name);
        let domain = domain.ok_or_else(|| not_listed("the board lists no clocks with this name"))?;
        let ceiling = self.ceiling(domain)?;
        if !domain.available.contains(&hertz) || hertz > ceiling {
            let text = "the driver does not offer this clock, or the power mode does not allow it";
            return Err(not_listed(text));
        }
        // While the kernel throttles, the file does not tell whether this clock is the one that was set.
        if self.limit_set(domain).is_ok_and(|set| set == hertz) {
            return Ok(());
        }
        self.save()?;
        self.ceilings.insert(domain.name.clone(), ceiling);
        self.write(domain, hertz).map_err(failed)
    }

    /// Saves what is set, unless something is changed already.
    fn save(&mut self) -> Result<(), Refusal> {
        match saved::read(&self.sysroot) {
            Ok(None) => {}
            Ok(Some(_)) => return Ok(()),
            Err(why) => return Err(failed(why)),
        }
        let modes = NvpModes::read(&self.sysroot).unwrap_or_default();
        let mut state =
            SavedState { power_mode: modes.current().map(|mode| mode.name.clone()), clocks: Vec::new() };
        for domain in clock_domains(&self.sysroot) {
            let hertz = self.limit_set(&domain)?;
            state.clocks.push(SavedClock { domain: domain.name, hertz });
        }
        saved::write(&state, &self.sysroot).map_err(failed)?;
        self.note_ceilings();
        Ok(())
    }

    /// Restores what was set before the first change, and removes the state file. Without a state file nothing is changed.
    ///
    /// # Errors
    /// Says what could not be restored; what could be, is.
    pub fn restore(&mut self) -> Result<(), RestoreError> {
        let saved = saved::read(&self.sysroot).map_err(|why| RestoreError(vec![why]))?;
        let Some(saved) = saved else { return Ok(()) };
        let mut faults = Vec::new();
        // The mode first: it sets clocks of its own.
        faults.extend(self.restore_mode(saved.power_mode.as_deref()).err());
        let domains = clock_domains(&self.sysroot);
        for SavedClock { domain, hertz } in saved.clocks {
            let Some(domain) = domains.iter().find(|known| known.name == domain) else {
                faults.push(format!("{domain} no longer exists on this machine, so it cannot be restored"));
                continue;
            };
            if domain.max(&self.sysroot).ok() != Some(hertz) {
                faults.extend(self.write(domain, hertz).err());
            }
        }
        self.ceilings.clear();
        if faults.is_empty() {
            faults.extend(saved::remove(&self.sysroot).err());
        }
        if faults.is_empty() { Ok(()) } else { Err(RestoreError(faults)) }
    }

    fn restore_mode(&self, name: Option<&str>) -> Result<(), String> {
        let Some(name) = name else { return Ok(()) };
        let modes = NvpModes::read(&self.sysroot).map_err(|why| why.to_string())?;
        if modes.current().is_some_and(|mode| mode.name == name) {
            return Ok(());
        }
        let lost = || format!("power mode {name} no longer exists on this machine, so it cannot be restored");
        let mode = modes.named(name).ok_or_else(lost)?;
        nvpmodel::set_mode(&self.sysroot, mode.id)
    }

    /// Writes the highest clock of a domain. Only a regular file that is there is written.
    fn write(&self, domain: &ClockDomain, hertz: u64) -> Result<(), String> {
        let path = self.sysroot.real_path(&domain.max_file).map_err(|why| why.to_string())?;
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
        // The kernel's own root is resolved by the kernel, and its last component is never a link.
        let mut options = OpenOptions::new();
        let opened = options.write(true).custom_flags(flags.bits() as i32).open(path);
        let write = opened.and_then(|mut file| match file.metadata()?.is_file() {
            true => {
                // A file of the kernel takes what is written as a whole; another keeps what is longer.
                file.set_len(0).or_else(|why| if self.sysroot.is_host() { Ok(()) } else { Err(why) })?;
                file.write_all(domain.text_of(hertz).as_bytes())
            }
            false => Err(std::io::Error::other("is not a regular file")),
        });
        write.map_err(|why| format!("{}: {why}", domain.max_file))
    }
}

fn not_listed(text: impl Into<String>) -> Refusal {
    refusal(RefusalReason::NotListed, text)
}

fn failed(text: impl Into<String>) -> Refusal {
    refusal(RefusalReason::Failed, text)
}

#[cfg(test)]
mod tests;
