//! Jetson Linux (L4T) releases and the JetPack releases that contain them.

/// Releases from R32.1 on, newest first: NVIDIA, JetPack Archive, as jetson-stats lists it (jtop/core/jetson_variables.py,
/// commit f41d5ca); R39.2.1 from NVIDIA's release of JetPack 7.2.1. Releases that came without a JetPack are left out.
const RELEASES: [(&str, &str); 46] = [
    ("39.2.1", "7.2.1"),
    ("39.2.0", "7.2"),
    ("38.4.0", "7.1"),
    ("38.2.2", "7.0"),
    ("38.2.1", "7.0"),
    ("38.2.0", "7.0"),
    ("36.5.0", "6.2.2"),
    ("36.4.7", "6.2.1"),
    ("36.4.4", "6.2.1"),
    ("36.4.3", "6.2"),
    ("36.4.2", "6.1 (rev. 1)"),
    ("36.4.0", "6.1"),
    ("36.3.0", "6.0"),
    ("36.2.0", "6.0 DP"),
    ("36.0.0", "6.0 EA"),
    ("35.6.4", "5.1.6"),
    ("35.6.3", "5.1.5"),
    ("35.6.2", "5.1.5"),
    ("35.6.1", "5.1.5"),
    ("35.6.0", "5.1.4"),
    ("35.5.0", "5.1.3"),
    ("35.4.1", "5.1.2"),
    ("35.3.1", "5.1.1"),
    ("35.3.0", "5.1.1 PRE"),
    ("35.2.1", "5.1"),
    ("35.1.0", "5.0.2"),
    ("32.7.6", "4.6.6"),
    ("32.7.5", "4.6.5"),
    ("32.7.4", "4.6.4"),
    ("32.7.3", "4.6.3"),
    ("32.7.2", "4.6.2"),
    ("32.7.1", "4.6.1"),
    ("32.6.1", "4.6"),
    ("32.5.2", "4.5.1"),
    ("32.5.1", "4.5.1"),
    ("32.5.0", "4.5"),
    ("32.4.4", "4.4.1"),
    ("32.4.3", "4.4"),
    ("32.4.2", "4.4 DP"),
    ("32.3.1", "4.3"),
    ("32.2.3", "4.2.3"),
    ("32.2.1", "4.2.2"),
    ("32.2.0", "4.2.1"),
    ("32.1.0", "4.2"),
    ("34.1.1", "5.0.1 DP"),
    ("34.1.0", "5.0 DP"),
];

/// Returns the JetPack release that contains an L4T release. `32.5` is the same as `32.5.0`.
pub(super) fn jetpack_of(l4t: &str) -> Option<&'static str> {
    let full = if l4t.matches('.').count() == 1 { format!("{l4t}.0") } else { l4t.to_owned() };
    RELEASES.iter().find(|(release, _)| *release == full).map(|(_, jetpack)| *jetpack)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_release_is_listed_once() {
        let releases: BTreeSet<&str> = RELEASES.iter().map(|(release, _)| *release).collect();
        assert_eq!(releases.len(), RELEASES.len());
        for (l4t, jetpack) in [
            ("36.4.3", Some("6.2")),
            ("32.5", Some("4.5")),
            ("39.2.0", Some("7.2")),
            ("35.4.1", Some("5.1.2")),
            ("40.1.0", None),
            ("", None),
        ] {
            assert_eq!(jetpack_of(l4t), jetpack, "{l4t}");
        }
    }
}
