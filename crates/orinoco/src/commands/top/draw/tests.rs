use expect_test::{Expect, expect};
use orinoco_api::{SensorsStatus, Status, StreamStatus};
use orinoco_core::{Diagnosis, Nanos, codes};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::draw;
use crate::commands::top::feed::{Answer, Origin};
use crate::commands::top::state::{Next, State};

/// Status of a synthetic board, as the end-to-end tests have it.
const STATUS: &str = include_str!("../../../../tests/daemon/status.json");

const SECOND: u64 = 1_000_000_000;

fn status() -> Status {
    serde_json::from_str(STATUS).expect("a status")
}

fn daemon() -> State {
    State::new("/run/orinoco/orinoco.sock".to_owned())
}

fn answer(state: &mut State, seconds: u64, status: Status) {
    state.on_answer(Nanos(seconds * SECOND), Ok(Answer { status, origin: Origin::Daemon }));
}

/// Returns the state after the status was given.
fn state_of(status: Status) -> State {
    let mut state = daemon();
    answer(&mut state, 0, status);
    state
}

fn press(state: &mut State, key: KeyCode) -> Next {
    state.on_key(KeyEvent::new(key, KeyModifiers::NONE))
}

fn absent() -> Diagnosis {
    Diagnosis::new(
        &codes::DAEMON_ABSENT,
        "/run/orinoco/orinoco.sock",
        "nobody listens at it",
        "start the daemon",
    )
}

/// Returns the screen as text, without the spaces at the ends of its lines.
fn screen(state: &State, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal.draw(|frame| draw(frame, state)).expect("drawn");
    let buffer = terminal.backend().buffer();
    let line = |row: u16| {
        let cells = (0..width).map(|column| buffer[(column, row)].symbol());
        cells.collect::<String>().trim_end().to_owned() + "\n"
    };
    (0..height).map(line).collect()
}

fn check(state: &State, (width, height): (u16, u16), expected: &Expect) {
    expected.assert_eq(&screen(state, width, height));
}

/// Returns a status with this number of streams, of which the third is stalled.
fn with_streams(number: usize) -> Status {
    let mut status = status();
    let stream = |index: usize| StreamStatus {
        name: format!("camera-{index:02}"),
        state: if index == 3 { "stalled" } else { "live" }.to_owned(),
        ..status.streams[0].clone()
    };
    status.streams = (1..=number).map(stream).collect();
    status
}

#[test]
fn a_board_on_a_terminal_of_the_usual_size() {
    let mut state = daemon();
    for (second, watts) in [9.0, 9.5, 12.0, 14.9, 13.0, 6.2, 6.1, 14.08].into_iter().enumerate() {
        let mut status = status();
        status.sensors.rails[0].watts = Some(watts);
        answer(&mut state, second as u64, status);
    }
    check(
        &state,
        (80, 24),
        &expect![[r#"
            gate-north  healthy, not ready  up 3 h 12 min                  14.08 W  149.8 kJ
            cpu ███░░░░░░░ 30 % gpu ███████░░░ 71 % memory ████░░░░░░░ 6236.6 of 15452.6 MiB
            rail                W        temperature     °C limit clock      MHz   max  load
            VDD_IN          14.08 ▆█▆▃▃▇ cpu-thermal   58.5    99 gpu        612   918  71 %
            VDD_CPU_GPU_CV   5.90 ██████ gpu-thermal   91.2    99 cpu 0-3   1510  1984  42 %
            VDD_SOC          1.90 ██████ cv0-thermal      -     - cpu 4-7    730  1984  18 %
                                         soc0-thermal  57.0    99 vic        115   730     -
                                         tj-thermal    91.2    99
                                         tmp451 temp1  43.2     -
            streams, 2 not live         state          fps   p50 ms   p99 ms  dropped   late
            gate                        live          30.0    21.30    38.70       22     14
            yard                        live          25.0    24.10    41.90        0      0
            ramp                        stalled        0.0        -        -      262      2
            dock-door-4-overhead-wide-… connecting     0.0        -        -        0      0
            models             engine      batch      images   p50 ms   p99 ms      mJ/image
            person-nano        ort-cuda        4      834190     7.90    12.40    61.4 ± 1.9
            plates             tract           1        9120    31.90    44.10             -
            events
              3 h 12 min ago  the source is live
                    55 s ago  attempt 4 failed: there is no /dev/video0
                     7 s ago  no frame for 5.0 s


            q quit  p pause  ↑↓ streams  ? help                    /run/orinoco/orinoco.sock
        "#]],
    );
}

#[test]
fn a_large_terminal_shows_more() {
    check(
        &state_of(status()),
        (120, 40),
        &expect![[r#"
            gate-north  healthy, not ready  up 3 h 12 min                                                          14.08 W  149.8 kJ
            cpu ██████░░░░░░░░░░░░░░ 30 % gpu ██████████████░░░░░░ 71 % memory █████████████░░░░░░░░░░░░░░░░░░ 6236.6 of 15452.6 MiB
            rail                W                      temperature                  °C limit clock                   MHz   max  load
            VDD_IN          14.08                    █ cpu-thermal                58.5    99 gpu                     612   918  71 %
            VDD_CPU_GPU_CV   5.90                    █ gpu-thermal                91.2    99 cpu 0-3                1510  1984  42 %
            VDD_SOC          1.90                    █ cv0-thermal                   -     - cpu 4-7                 730  1984  18 %
                                                       soc0-thermal               57.0    99 vic                     115   730     -
                                                       tj-thermal                 91.2    99
                                                       tmp451 temp1               43.2     -

            streams, 2 not live            state          fps   p50 ms   p99 ms  dropped   late      mJ/frame reconnects  frames out
            gate                           live          30.0    21.30    38.70       22     14    84.2 ± 2.6          0      345790
            yard                           live          25.0    24.10    41.90        0      0    84.2 ± 2.6          1      288400
            ramp                           stalled        0.0        -        -      262      2             -         17      200871
            dock-door-4-overhead-wide-ang… connecting     0.0        -        -        0      0             -          3           0

            models                                      engine      batch      images   p50 ms   p99 ms      mJ/image version
            person-nano                                 ort-cuda        4      834190     7.90    12.40    61.4 ± 1.9 1.31.1
            plates                                      tract           1        9120    31.90    44.10             - 0.23.9

            events
              3 h 12 min ago  the source is live
                    55 s ago  attempt 4 failed: there is no /dev/video0
                     7 s ago  no frame for 5.0 s















            q quit  p pause  ↑↓ streams  ? help                                                            /run/orinoco/orinoco.sock
        "#]],
    );
    check(
        &state_of(status()),
        (200, 30),
        &expect![[r#"
            gate-north  healthy, not ready  up 3 h 12 min                                                                                                                                          14.08 W  149.8 kJ
            cpu ████████████░░░░░░░░░░░░░░░░░░░░░░░░░░░░ 30 % gpu █████████████████████████████░░░░░░░░░░░ 71 % memory █████████████████████████████░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░ 6236.6 of 15452.6 MiB
            rail                 W       V       A                                  temperature                                          °C limit clock                                              MHz   max  load
            VDD_IN           14.08   19.03    0.74                                █ cpu-thermal                                        58.5    99 gpu                                                612   918  71 %
            VDD_CPU_GPU_CV    5.90   19.02    0.31                                █ gpu-thermal                                        91.2    99 cpu 0-3                                           1510  1984  42 %
            VDD_SOC           1.90   19.03    0.10                                █ cv0-thermal                                           -     - cpu 4-7                                            730  1984  18 %
                                                                                    soc0-thermal                                       57.0    99 vic                                                115   730     -
                                                                                    tj-thermal                                         91.2    99
                                                                                    tmp451 temp1                                       43.2     -

            streams, 2 not live                                state          fps   p50 ms   p99 ms  dropped   late      mJ/frame reconnects  frames out   last frame  lane source
            gate                                               live          30.0    21.30    38.70       22     14    84.2 ± 2.6          0      345790      0 s ago     0 rtsp://10.0.0.21/live
            yard                                               live          25.0    24.10    41.90        0      0    84.2 ± 2.6          1      288400      0 s ago     0 rtsp://10.0.0.22/live
            ramp                                               stalled        0.0        -        -      262      2             -         17      200871      7 s ago     1 rtsp://10.0.0.23/live
            dock-door-4-overhead-wide-angle                    connecting     0.0        -        -        0      0             -          3           0         none     1 v4l2:///dev/video0

            models                                                                                                                      engine      batch      images   p50 ms   p99 ms      mJ/image version
            person-nano                                                                                                                 ort-cuda        4      834190     7.90    12.40    61.4 ± 1.9 1.31.1
            plates                                                                                                                      tract           1        9120    31.90    44.10             - 0.23.9

            events
              3 h 12 min ago  the source is live
                    55 s ago  attempt 4 failed: there is no /dev/video0
                     7 s ago  no frame for 5.0 s





            q quit  p pause  ↑↓ streams  ? help                                                                                                                                            /run/orinoco/orinoco.sock
        "#]],
    );
}

#[test]
fn a_small_terminal_shows_what_is_most_important() {
    check(
        &state_of(status()),
        (60, 16),
        &expect![[r#"
            gate-north  healthy, not ready  up 3 h 12 min
            cpu ██░░░ 30 % gpu ████░ 71 % memory ░ 6236.6 of 15452.6 MiB
            rail                W              temperature      °C limit
            VDD_IN          14.08           █  cpu-thermal    58.5    99
            VDD_CPU_GPU_CV   5.90           █  gpu-thermal    91.2    99
            VDD_SOC          1.90           █  … 4 more
            streams, 2 not … state          fps   p99 ms  dropped   late
            gate             live          30.0    38.70       22     14
            yard             live          25.0    41.90        0      0
            ramp             stalled        0.0        -      262      2
            dock-door-4-ove… connecting     0.0        -        0      0
            models 1-1/2               engine       p99 ms      mJ/image
            person-nano                ort-cuda      12.40    61.4 ± 1.9
            events
                     7 s ago  no frame for 5.0 s
            q quit  p pause  ↑↓ streams  ? help  /run/orinoco/orinoco.s…
        "#]],
    );
    check(
        &state_of(status()),
        (40, 10),
        &expect![[r#"
        gate-north
        healthy, not ready  up 3 h 12 min
        14.08 W  cpu 30 %  gpu 71 %
        memory 6236.6 of 15452.6 MiB
        91.2 of 99 °C tj-thermal
        streams 2 of 4 live, 55.0 fps
        p99 41.90 ms yard
        q quit; 60x16 shows all


    "#]],
    );
    check(
        &state_of(status()),
        (20, 4),
        &expect![[r#"
        gate-north
        healthy, not ready
        14.08 W  cpu 30 %  g
        q quit; 60x16 shows
    "#]],
    );
}

#[test]
fn no_size_is_too_small_to_draw() {
    let mut state = state_of(with_streams(30));
    state.on_answer(Nanos(SECOND), Err(absent()));
    for help in [false, true] {
        state.is_help_shown = help;
        for width in (0..=130).step_by(3) {
            for height in 0..=40 {
                screen(&state, width, height);
                screen(&daemon(), width, height);
            }
        }
    }
}

#[test]
fn many_streams_are_scrolled() {
    let mut state = state_of(with_streams(30));
    let streams = |state: &State| {
        let text = screen(state, 80, 24);
        let lines = text.lines().skip_while(|line| !line.starts_with("streams"));
        let names =
            lines.take_while(|line| !line.starts_with("models")).filter_map(|line| line.split("  ").next());
        names.collect::<Vec<_>>().join(" ")
    };
    expect!["streams 1-6/30, 1 not live camera-01 camera-02 camera-03 camera-04 camera-05 camera-06"]
        .assert_eq(&streams(&state));
    for _ in 0..5 {
        press(&mut state, KeyCode::Down);
    }
    expect!["streams 6-11/30, 1 not live state camera-06 camera-07 camera-08 camera-09 camera-10 camera-11"]
        .assert_eq(&streams(&state));
    for _ in 0..100 {
        press(&mut state, KeyCode::Down);
    }
    expect!["streams 25-30/30, 1 not li… state camera-25 camera-26 camera-27 camera-28 camera-29 camera-30"]
        .assert_eq(&streams(&state));
    // Streams that end do not leave an empty page.
    answer(&mut state, 1, with_streams(2));
    expect!["streams camera-01 camera-02 "].assert_eq(&streams(&state));
}

#[test]
fn a_board_without_streams_and_sensors_says_so() {
    let mut status = status();
    status.streams.clear();
    status.models.clear();
    status.events.clear();
    status.sensors = SensorsStatus::default();
    status.energy.rails.clear();
    status.energy.joules = None;
    check(
        &state_of(status),
        (80, 16),
        &expect![[r#"
            gate-north  healthy, not ready  up 3 h 12 min
            cpu -                                   memory ████░░░░░░░ 6236.6 of 15452.6 MiB
            rail                       W temperature     °C limit clock      MHz   max  load
            no rail known                no temperature known     no clock known

            streams
            no streams; 1 stream ended








            q quit  p pause  ↑↓ streams  ? help                    /run/orinoco/orinoco.sock
        "#]],
    );
}

#[test]
fn long_names_are_shortened() {
    let mut status = status();
    let long = "a-name-that-somebody-made-out-of-a-whole-sentence-and-a-serial-number-0123456789-0123456789";
    status.board = long.to_owned();
    status.streams[0].name = long.to_owned();
    status.models[0].name = long.to_owned();
    status.sensors.rails[0].name = long.to_owned();
    status.sensors.temperatures[0].name = long.to_owned();
    status.sensors.clocks[0].name = long.to_owned();
    status.events[0].text = long.to_owned();
    check(
        &state_of(status),
        (80, 24),
        &expect![[r#"
            a-name-that-somebody-made…  healthy, not ready  up 3 h 12 min           149.8 kJ
            cpu ███░░░░░░░ 30 % gpu ███████░░░ 71 % memory ████░░░░░░░ 6236.6 of 15452.6 MiB
            rail                  W      temperature     °C limit clock      MHz   max  load
            a-name-that-som…  14.08    █ a-name-that…  58.5    99 gpu        612   918  71 %
            VDD_CPU_GPU_CV     5.90    █ gpu-thermal   91.2    99 cpu 0-3   1510  1984  42 %
            VDD_SOC            1.90    █ cv0-thermal      -     - cpu 4-7    730  1984  18 %
                                         soc0-thermal  57.0    99 a-name-t…  115   730     -
                                         tj-thermal    91.2    99
                                         tmp451 temp1  43.2     -
            streams, 2 not live         state          fps   p50 ms   p99 ms  dropped   late
            a-name-that-somebody-made-… live          30.0    21.30    38.70       22     14
            yard                        live          25.0    24.10    41.90        0      0
            ramp                        stalled        0.0        -        -      262      2
            dock-door-4-overhead-wide-… connecting     0.0        -        -        0      0
            models             engine      batch      images   p50 ms   p99 ms      mJ/image
            a-name-that-someb… ort-cuda        4      834190     7.90    12.40    61.4 ± 1.9
            plates             tract           1        9120    31.90    44.10             -
            events
              3 h 12 min ago  a-name-that-somebody-made-out-of-a-whole-sentence-and-a-seria…
                    55 s ago  attempt 4 failed: there is no /dev/video0
                     7 s ago  no frame for 5.0 s


            q quit  p pause  ↑↓ streams  ? help                    /run/orinoco/orinoco.sock
        "#]],
    );
}

#[test]
fn a_host_with_many_cores_has_one_row_for_their_clocks() {
    let mut status = status();
    let core = |index: usize| orinoco_api::ClockStatus {
        name: format!("cpu {index}"),
        mhz: Some(1200.0 + index as f64),
        max_mhz: Some(3600.0),
        load: None,
    };
    status.sensors.clocks = (0..64).map(core).collect();
    let text = screen(&state_of(status), 80, 24);
    let row = text.lines().find(|line| line.contains("64 cpus")).expect("a row");
    assert!(row.ends_with("1263  3600     -"), "{row}");
}

#[test]
fn a_daemon_that_is_gone_leaves_its_last_state() {
    let mut state = state_of(status());
    state.on_answer(Nanos(72 * SECOND), Err(absent()));
    check(
        &state,
        (80, 24),
        &expect![[r#"
            gate-north  no answer                                          14.08 W  149.8 kJ
            no answer for 1 min 12 s, last state shown: nobody listens at it
            cpu ███░░░░░░░ 30 % gpu ███████░░░ 71 % memory ████░░░░░░░ 6236.6 of 15452.6 MiB
            rail                W        temperature     °C limit clock      MHz   max  load
            VDD_IN          14.08      █ cpu-thermal   58.5    99 gpu        612   918  71 %
            VDD_CPU_GPU_CV   5.90      █ gpu-thermal   91.2    99 cpu 0-3   1510  1984  42 %
            VDD_SOC          1.90      █ cv0-thermal      -     - cpu 4-7    730  1984  18 %
                                         soc0-thermal  57.0    99 vic        115   730     -
                                         tj-thermal    91.2    99
                                         tmp451 temp1  43.2     -
            streams, 2 not live         state          fps   p50 ms   p99 ms  dropped   late
            gate                        live          30.0    21.30    38.70       22     14
            yard                        live          25.0    24.10    41.90        0      0
            ramp                        stalled        0.0        -        -      262      2
            dock-door-4-overhead-wide-… connecting     0.0        -        -        0      0
            models             engine      batch      images   p50 ms   p99 ms      mJ/image
            person-nano        ort-cuda        4      834190     7.90    12.40    61.4 ± 1.9
            plates             tract           1        9120    31.90    44.10             -
            events
              3 h 12 min ago  the source is live
                    55 s ago  attempt 4 failed: there is no /dev/video0
                     7 s ago  no frame for 5.0 s

            q quit  p pause  ↑↓ streams  ? help                    /run/orinoco/orinoco.sock
        "#]],
    );
    answer(&mut state, 73, status());
    assert!(!screen(&state, 80, 24).contains("no answer"), "it is back");
}

#[test]
fn before_the_first_answer_the_reason_is_shown() {
    let mut state = daemon();
    check(
        &state,
        (60, 3),
        &expect![[r#"
        waiting for an answer from /run/orinoco/orinoco.sock
        q quit

    "#]],
    );
    state.on_answer(Nanos(SECOND), Err(absent()));
    check(
        &state,
        (60, 4),
        &expect![[r#"
        waiting for an answer from /run/orinoco/orinoco.sock
        /run/orinoco/orinoco.sock: nobody listens at it; start the
        daemon
        q quit
    "#]],
    );
}

#[test]
fn this_machine_alone_has_only_sensors() {
    let mut state = daemon();
    let status = Status {
        healthy: false,
        ready: false,
        streams: Vec::new(),
        models: Vec::new(),
        lanes: Vec::new(),
        events: Vec::new(),
        ..status()
    };
    let origin = Origin::Local { no_daemon: Some(absent()) };
    state.on_answer(Nanos(0), Ok(Answer { status, origin }));
    check(
        &state,
        (80, 16),
        &expect![[r#"
            gate-north  sensors of this machine only                       14.08 W  149.8 kJ
            nobody listens at it; start the daemon
            cpu ███░░░░░░░ 30 % gpu ███████░░░ 71 % memory ████░░░░░░░ 6236.6 of 15452.6 MiB
            rail                W        temperature     °C limit clock      MHz   max  load
            VDD_IN          14.08      █ cpu-thermal   58.5    99 gpu        612   918  71 %
            VDD_CPU_GPU_CV   5.90      █ gpu-thermal   91.2    99 cpu 0-3   1510  1984  42 %
            VDD_SOC          1.90      █ cv0-thermal      -     - cpu 4-7    730  1984  18 %
                                         soc0-thermal  57.0    99 vic        115   730     -
                                         tj-thermal    91.2    99
                                         tmp451 temp1  43.2     -





            q quit  p pause  ↑↓ streams  ? help                    /run/orinoco/orinoco.sock
        "#]],
    );
}

#[test]
fn a_paused_screen_does_not_change() {
    let mut state = state_of(status());
    press(&mut state, KeyCode::Char('p'));
    let mut later = status();
    later.board = "gate-south".to_owned();
    answer(&mut state, 1, later.clone());
    let text = screen(&state, 80, 24);
    assert!(text.starts_with("gate-north  paused  healthy"), "{text}");
    press(&mut state, KeyCode::Char('p'));
    answer(&mut state, 2, later);
    assert!(screen(&state, 80, 24).starts_with("gate-south  healthy"));
}

#[test]
fn the_help_has_the_keys_and_the_reasons() {
    let mut state = state_of(status());
    press(&mut state, KeyCode::Char('?'));
    check(
        &state,
        (80, 24),
        &expect![[r#"
            gate-north  healthy, not ready  up 3 h 12 min                  14.08 W  149.8 kJ
            cpu ███░░░░░░░ 30 % gpu ███████░░░ 71 % memory ████░░░░░░░ 6236.6 of 15452.6 MiB
            rail                W        temperature     °C limit clock      MHz   max  load
            VDD_IN          14.08      █ cpu-thermal   58.5    99 gpu        612   918  71 %
            VDD_CPU_GPU_CV   5.90      █ gpu-thermal   91.2    99 cpu 0-3   1510  1984  42 %
            VDD_SOC          1.90      █ cv0-thermal      -     - cpu 4-7    730  1984  18 %
            ┌help──────────────────────────────────────────────────────────────────────────┐
            │q, Esc, Ctrl-C  quit                                                          │
            │p               pause, and go on                                              │
            │↑ ↓             scroll the streams                                            │
            │?               show or hide this help                                        │
            │                                                                              │
            │values that are not known                                                     │
            │temperature of cv0-thermal: its file has no value at present                  │
            │load of 15340000.vic: the driver does not offer it                            │
            │duty cycle of fan pwm_tach: the driver does not offer it                      │
            │speed of fan pwmfan: the driver does not offer it                             │
            └──────────────────────────────────────────────────────────────────────────────┘
              3 h 12 min ago  the source is live
                    55 s ago  attempt 4 failed: there is no /dev/video0
                     7 s ago  no frame for 5.0 s


            q quit  p pause  ↑↓ streams  ? help                    /run/orinoco/orinoco.sock
        "#]],
    );
    // Esc closes the help first, and then the screen.
    assert_eq!(press(&mut state, KeyCode::Esc), Next::Continue);
    assert_eq!(press(&mut state, KeyCode::Esc), Next::Quit);
    assert_eq!(press(&mut state, KeyCode::Char('q')), Next::Quit);
    assert_eq!(state.on_key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Next::Quit);
}
