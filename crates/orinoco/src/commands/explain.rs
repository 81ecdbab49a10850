//! `orinoco explain`.

use orinoco_config::Faults;
use orinoco_core::{Code, Diagnosis, Exit, codes};
use serde::Serialize;

use crate::output;

#[derive(Serialize)]
struct Page {
    code: &'static str,
    exit: u8,
    title: &'static str,
    page: &'static str,
}

impl From<&Code> for Page {
    fn from(code: &Code) -> Self {
        Self { code: code.id, exit: code.exit as u8, title: code.title, page: code.page }
    }
}

pub(crate) fn run(wanted: Option<&str>, json: bool) -> Result<Exit, Faults> {
    match wanted {
        None if json => {
            let pages: Vec<Page> = codes::ALL.iter().map(|code| Page::from(*code)).collect();
            output::print_json_list("orinoco.codes/1", "codes", &pages);
        }
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
                true => output::print_json_list("orinoco.codes/1", "codes", &[Page::from(*found)]),
                false => output::print(&format!(
                    "{}: {} (exit code {})\n\n{}",
                    found.id, found.title, found.exit as u8, found.page
                )),
            }
        }
    }
    Ok(Exit::Done)
}
