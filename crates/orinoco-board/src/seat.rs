//! Keys of a model that another seat of the cluster executes.

use orinoco_config::TableReader;
use orinoco_core::{Choice, codes};

/// Seat of the cluster that executes a model for this board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeatSpec {
    /// Name of the seat in the member list. Its board file has a model of the same name.
    pub name: String,
    /// Treatment of images that the seat does not infer.
    pub fallback: SeatFallback,
}

/// Treatment of images that another seat should infer and does not: it is offline, late, overloaded or fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SeatFallback {
    /// Their frames go on without results of the model. This board does not load it.
    #[default]
    Skip,
    /// This board infers them. It loads the model, too.
    Local,
}

impl Choice for SeatFallback {
    const ALL: &'static [Self] = &[Self::Skip, Self::Local];

    fn name(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Local => "local",
        }
    }
}

/// Reads the seat of a model; `None` if this board executes it.
pub(crate) fn read_seat(table: &TableReader<'_>) -> Option<SeatSpec> {
    let fallback: Option<SeatFallback> = table.choice_of("fallback");
    let Some(name) = table.text("seat") else {
        if fallback.is_some() && !table.has("seat") {
            let cause = "this key is for models with `seat`: without `seat`, this board executes the model";
            table.fault("fallback", &codes::REFERENCE, cause, "add `seat`, or remove the key");
        }
        return None;
    };
    let fallback = fallback.unwrap_or_default();
    if table.has("variants") {
        let cause = "a model with `seat` cannot have variants";
        table.fault("variants", &codes::REFERENCE, cause, "remove the key, or `seat`");
    }
    let of_model = ["score_threshold", "iou_threshold", "resize"];
    for key in of_model.into_iter().filter(|key| fallback == SeatFallback::Skip && table.has(key)) {
        let cause = format!("seat `{name}` executes the model with the settings of its own board file");
        table.fault(key, &codes::REFERENCE, cause, "move the key to that file, or add fallback = \"local\"");
    }
    Some(SeatSpec { name, fallback })
}

#[cfg(test)]
mod tests {
    use crate::{Capabilities, load};
    use expect_test::{Expect, expect};
    use orinoco_config::Vars;

    const CLUSTER: &str = "[cluster]\nlist = 'members'\nkey = 'seat.key'\n\
                           operator_key = '0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f'\n";

    fn check(text: &str, expected: Expect) {
        let dir = tempfile::tempdir().expect("temporary folder");
        let path = dir.path().join("b.toml");
        std::fs::write(&path, format!("version = 1\n{text}")).expect("write");
        let known = Capabilities::default();
        let shown = match load(&path, &known, &Vars::new()) {
            Ok(board) => board.models.iter().map(|model| format!("{:?}\n", model.seat)).collect(),
            Err(faults) => faults.to_string(),
        };
        expected.assert_eq(&shown.replace(&format!("{}/", dir.path().display()), ""));
    }

    #[test]
    fn a_seat_is_read_with_its_fallback() {
        let stream = "[[stream]]\nname = 'x'\nsource = 'test://ball'\nmodels = ['a']\n";
        let served = "[[stream]]\nname = 'y'\nsource = 'cluster://'\nmodels = ['c']\n";
        let models = "[[model]]\nname = 'a'\nseat = 'north'\nscore_threshold = 0.5\nfallback = 'local'\n\
                      [[model]]\nname = 'b'\nseat = 'south'\n[[model]]\nname = 'c'\n";
        check(
            &format!("{CLUSTER}{models}{stream}{served}"),
            expect![[r#"
                Some(SeatSpec { name: "north", fallback: Local })
                Some(SeatSpec { name: "south", fallback: Skip })
                None
            "#]],
        );
    }

    #[test]
    fn settings_that_do_not_go_together_are_refused() {
        let stream = "[[stream]]\nname = 'x'\nsource = 'test://ball'\nmodels = ['a']\n";
        let a = "[[model]]\nname = 'a'\nseat = 'north'\nresize = 'bilinear'\nvariants = ['d']\n";
        let b = "[[model]]\nname = 'b'\nfallback = 'local'\n";
        check(
            &format!("{CLUSTER}{a}{b}{stream}"),
            expect![[r#"
            b.toml:10: key `model[0].variants`: a model with `seat` cannot have variants; remove the key, or `seat`
            b.toml:9: key `model[0].resize`: seat `north` executes the model with the settings of its own board file; move the key to that file, or add fallback = "local"
            b.toml:13: key `model[1].fallback`: this key is for models with `seat`: without `seat`, this board executes the model; add `seat`, or remove the key"#]],
        );
        let a = "[[model]]\nname = 'a'\nseat = 'north'\n";
        let served = "[[stream]]\nname = 'y'\nsource = 'cluster://'\nmodels = ['a']\n";
        check(
            &format!("{a}{stream}{served}"),
            expect![[r#"
            b.toml:2: key `model`: model `a` has seat `north`, but the board file has no [cluster]; add it (docs/board-files.md)
            b.toml:5: key `stream`: stream `y` has source cluster://, but the board file has no [cluster]; add it (docs/board-files.md)
            b.toml:5: key `stream`: stream `y` lists model `a` for the cluster, which seat `north` executes; remove `seat` from the model, or the model from the stream"#]],
        );
        let place = "[[stream]]\nname = 'y'\nsource = 'cluster://north'\nmodels = []\n";
        check(
            &format!("{CLUSTER}{place}"),
            expect![[
                r#"b.toml:8: cluster://north: nothing follows `cluster://`; write source = "cluster://": it serves all seats"#
            ]],
        );
    }
}
