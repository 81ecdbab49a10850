//! `orinoco explain`.

use orinoco_api::CodeList;
use orinoco_config::Faults;
use orinoco_core::{Diagnosis, Exit, codes};

use crate::output;

pub(crate) fn run(wanted: Option<&str>, json: bool) -> Result<Exit, Faults> {
    match wanted {
        None if json => output::print_json_sorted(&CodeList::new(codes::ALL.iter().copied())),
        None => {
            let rows =
                codes::ALL.iter().map(|code| vec![code.id.to_owned(), code.title.to_owned()]).collect();
            output::print(&output::table(&["code", "meaning"], 2, rows));
        }
        Some(wanted) => {
            let found =
                codes::ALL.iter().find(|code| code.id.eq_ignore_ascii_case(wanted)).ok_or_else(|| {
                    Diagnosis::new(
                        &codes::UNKNOWN_CODE,
                        wanted,
                        "no such code",
                        "run `orinoco explain` to list them",
                    )
                })?;
            match json {
                true => output::print_json_sorted(&CodeList::new([*found])),
                false => output::print(&format!(
                    "{}: {} (exit code {})\n\n{}",
                    found.id, found.title, found.exit as u8, found.page
                )),
            }
        }
    }
    Ok(Exit::Done)
}
