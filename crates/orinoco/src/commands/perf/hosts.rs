//! Ranks on several machines, which are started over SSH.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use orinoco_api::{ErrorReport, PerfReport};
use orinoco_collective::GroupKey;
use orinoco_core::{Diagnosis, codes};

use crate::args::PerfArgs;
use crate::output;

/// Port at which rank 0 listens, unless `--address` names another.
const PORT: u16 = 4712;
/// Largest report of a rank.
const REPORT_BYTES_MAX: u64 = 16 << 20;

/// Starts a rank on each host, and returns the report of rank 0.
///
/// Each rank reads the group's key from its standard input, so that the key is in no file and on no command line.
///
/// # Errors
/// A host that cannot be reached, or whose rank failed, with its last message.
pub(super) fn measure(args: &PerfArgs, transport: &str) -> Result<PerfReport, Diagnosis> {
    let address = match args.address {
        Some(address) => address,
        None => SocketAddr::new(address_of(&args.hosts[0])?, PORT),
    };
    let key = GroupKey::generate().map_err(|why| {
        let next =
            "check that getrandom(2) is allowed here, as in a container with a restricted seccomp profile";
        Diagnosis::new(&codes::GROUP_KEY, "group key", why.to_string(), next)
    })?;
    let (ended, ends) = mpsc::channel();
    let start = |(rank, host): (usize, &String)| {
        let command = remote_command(args, transport, rank, address);
        Host::start(args, host, rank, command, &key, ended.clone())
    };
    // If one rank cannot be started, those already started are ended.
    let mut hosts = args.hosts.iter().enumerate().map(start).collect::<Result<Vec<Host>, Diagnosis>>()?;
    for _ in 0..hosts.len() {
        let rank = ends.recv().expect("this function holds a sender, too");
        // The others would wait for this one.
        hosts[rank].finish()?;
    }
    let next = "install the same version of orinoco on all hosts";
    hosts[0].report().ok_or_else(|| fault(&args.hosts[0], "rank 0 printed no report".to_owned(), next))
}

/// Address of a host, which all others connect to.
fn address_of(host: &str) -> Result<IpAddr, Diagnosis> {
    let name = host.rsplit('@').next().unwrap_or(host);
    let next = "give the first host's IP address and port with --address";
    let found = (name, PORT).to_socket_addrs();
    let mut found = found.map_err(|why| {
        fault(
            host,
            format!("its name cannot be resolved (aliases of the SSH configuration are not used): {why}"),
            next,
        )
    })?;
    let address = found.next().ok_or_else(|| fault(host, "its name has no IP address".to_owned(), next))?;
    Ok(address.ip())
}

/// A rank on a host. Dropping this value ends it.
struct Host {
    name: String,
    child: Child,
    /// Reads what the rank prints on standard output and standard error.
    printed: [Option<JoinHandle<String>>; 2],
    /// Report of rank 0, or the error that it prints instead.
    output: String,
}

impl Host {
    /// Starts a rank. Its number is sent when it has ended.
    fn start(
        args: &PerfArgs,
        host: &str,
        rank: usize,
        remote_command: Vec<String>,
        key: &GroupKey,
        ended: Sender<usize>,
    ) -> Result<Self, Diagnosis> {
        let mut words = args.ssh.split_whitespace();
        let program = words.next().unwrap_or("ssh");
        let mut command = Command::new(program);
        // Nobody is there to type a password or to accept a host key. A host that cannot be reached, or that falls silent, ends ssh.
        let options =
            ["BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3"];
        command.args(words).args(options.iter().flat_map(|option| ["-o", option]));
        command.args(["--", host]).args(remote_command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let next = "install the OpenSSH client, or name another command with --ssh";
        let mut child = command.spawn().map_err(|why| fault(program, why.to_string(), next))?;
        let mut stdin = child.stdin.take().expect("a pipe");
        let text = key.to_text();
        // The write fails if the host is unreachable; the exit code of ssh reports that.
        let _ = stdin.write_all(text.as_bytes()).and_then(|()| stdin.write_all(b"\n"));
        let (stdout, stderr) = (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
        let name = host.to_owned();
        let report = thread::spawn(move || read_report(stdout));
        let messages = thread::spawn(move || {
            let last = show_messages(&name, stderr);
            // Nobody waits for it after another rank has failed.
            let _ = ended.send(rank);
            last
        });
        let printed = [Some(report), Some(messages)];
        Ok(Self { name: host.to_owned(), child, printed, output: String::new() })
    }

    /// Waits for the end of the rank.
    fn finish(&mut self) -> Result<(), Diagnosis> {
        let status = self.child.wait();
        let printed = self
            .printed
            .each_mut()
            .map(|thread| thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default());
        let [output, last] = printed;
        self.output = output;
        let cause = self.error().unwrap_or(last);
        match status.ok().and_then(|status| status.code()) {
            // Exit code 1 of rank 0 means wrong results; its report contains them.
            Some(0 | 1) => Ok(()),
            // The exit code of ssh, and of a shell that cannot run the program.
            Some(255 | 126 | 127) | None => Err(fault(&self.name, cause, "see `orinoco explain E1007`")),
            Some(code) => {
                let cause = format!("its rank ended with exit code {code}: {cause}");
                let next = "see `orinoco explain E1002`";
                Err(Diagnosis::new(&codes::COLLECTIVE_FAILED, self.name.as_str(), cause, next))
            }
        }
    }

    /// Returns the error that rank 0 has printed instead of its report, as a sentence.
    fn error(&self) -> Option<String> {
        let report: ErrorReport = serde_json::from_str(&self.output).ok()?;
        let fault = report.faults.into_iter().next()?;
        Some(format!("{}: {}; {}", fault.subject, fault.cause, fault.next))
    }

    /// Returns the report that rank 0 has printed.
    fn report(&self) -> Option<PerfReport> {
        serde_json::from_str(&self.output).ok()
    }
}

/// Reads what a rank prints on standard output: a report, or nothing.
fn read_report(stdout: ChildStdout) -> String {
    let mut text = String::new();
    // Output that is too long or not UTF-8 fails to parse as a report.
    let _ = stdout.take(REPORT_BYTES_MAX).read_to_string(&mut text);
    text
}

/// Prints the messages of a rank with the name of its host, and returns the last one.
fn show_messages(host: &str, stderr: ChildStderr) -> String {
    let mut last = "it printed no message".to_owned();
    for line in BufReader::new(stderr).lines().map_while(Result::ok).filter(|line| !line.is_empty()) {
        output::note(&format!("{host}: {line}"));
        last = line;
    }
    last
}

impl Drop for Host {
    fn drop(&mut self) {
        // Closing the connection ends the rank. If it has ended already, this has no effect.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Command line of a rank. All of its words are names, numbers and paths without spaces.
fn remote_command(args: &PerfArgs, transport: &str, rank: usize, address: SocketAddr) -> Vec<String> {
    let mut words = vec![args.program.clone(), "perf".to_owned(), args.operation.clone()];
    let mut add = |name: &str, value: String| words.extend([name.to_owned(), value]);
    add("--begin", args.begin.to_string());
    add("--end", args.end.to_string());
    add("--factor", args.factor.to_string());
    add("--iterations", args.iterations.to_string());
    add("--datatype", args.datatype.clone());
    add("--redop", args.redop.clone());
    add("--ranks", args.hosts.len().to_string());
    add("--rank", rank.to_string());
    add("--address", address.to_string());
    add("--key", "-".to_owned());
    add("--transport", transport.to_owned());
    add("--tcp-connections", args.tcp_connections.to_string());
    add("--order", args.order.clone());
    if let Some(algorithm) = &args.algorithm {
        add("--algorithm", algorithm.clone());
    }
    let flags =
        [(args.check, "--check"), (args.tune, "--tune"), (args.explain, "--explain"), (rank == 0, "--json")];
    words.extend(args.energy.map(|seconds| format!("--energy={seconds}")));
    words.extend(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| (*name).to_owned()));
    words
}

fn fault(subject: &str, cause: String, next: &str) -> Diagnosis {
    Diagnosis::new(&codes::HOST_LOGIN, subject, cause, next)
}
