//! Files of the Unix socket, and addresses of the TCP listener.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;

use orinoco_server::{Limits, LocalSocket, LoopbackListener, SocketSetting};

use crate::fake::Served;

fn check(path: &Path, cause: &str) {
    let fault = LocalSocket::bind(path, SocketSetting::CONTROL).expect_err("the socket is refused");
    assert_eq!((fault.code.id, fault.cause.as_str()), ("E0901", cause));
    assert_eq!(fault.subject, path.display().to_string());
    assert!(!fault.next.is_empty());
}

#[test]
fn a_socket_is_for_owner_and_group_and_is_gone_at_the_end() {
    let mut served = Served::new(Limits::default());
    let metadata = fs::symlink_metadata(&served.path).expect("the socket");
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o660);
    drop(served.server.take());
    assert!(!served.path.exists(), "the server removes its socket");
}

#[test]
fn a_socket_that_another_has_replaced_is_left_alone() {
    let mut served = Served::new(Limits::default());
    fs::remove_file(&served.path).expect("it can be removed");
    let _other = UnixListener::bind(&served.path).expect("another one");
    drop(served.server.take());
    assert!(UnixStream::connect(&served.path).is_ok());
}

#[test]
fn a_socket_without_a_listener_is_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("orinoco.sock");
    drop(UnixListener::bind(&path).expect("a socket"));
    let before = fs::symlink_metadata(&path).expect("its file stays").ino();
    let socket = LocalSocket::bind(&path, SocketSetting::CONTROL).expect("it is replaced");
    assert_eq!(socket.path(), path);
    assert!(UnixStream::connect(&path).is_ok());
    drop(socket);
    assert!(!path.exists(), "the file {before} and its successor are gone");
}

#[test]
fn a_socket_with_a_listener_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("orinoco.sock");
    let listener = UnixListener::bind(&path).expect("a socket");
    check(&path, "another process listens on it");
    // Its queue is full, and a client that waits would wait without end.
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(UnixStream::connect(&path).expect("the queue has room"));
    }
    check(&path, "another process listens on it");
    drop(listener);
    let ours = LocalSocket::bind(&path, SocketSetting::CONTROL).expect("the listener is gone");
    check(&path, "another process listens on it");
    drop(ours);
}

#[test]
fn other_files_are_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    fs::write(at("file"), "text").expect("a file");
    fs::create_dir(at("folder")).expect("a folder");
    symlink(at("none"), at("link")).expect("a link");
    drop(UnixListener::bind(at("stale")).expect("a socket"));
    symlink(at("stale"), at("link-to-stale")).expect("a link");
    let _datagrams = UnixDatagram::bind(at("datagrams")).expect("a socket of another type");
    check(&at("file"), "there is a file of that name");
    check(&at("folder"), "there is a folder of that name");
    check(&at("link"), "there is a symbolic link of that name");
    check(&at("link-to-stale"), "there is a symbolic link of that name");
    let fault = LocalSocket::bind(&at("datagrams"), SocketSetting::CONTROL).expect_err("it is in use");
    assert!(fault.cause.starts_with("there is a socket of that name that cannot be checked: "), "{fault}");
    assert_eq!(fs::read_to_string(at("file")).expect("it stays"), "text");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 6);
}

#[test]
fn a_socket_needs_a_free_folder_and_a_short_path() {
    let folder = tempfile::tempdir().expect("a folder");
    let lock = fs::File::open(folder.path()).expect("a folder");
    lock.try_lock().expect("nobody else has it");
    check(&folder.path().join("orinoco.sock"), "another process has locked its folder");
    drop(lock);
    check(&folder.path().join("none/orinoco.sock"), "No such file or directory (os error 2)");
    check(&folder.path().join("x".repeat(120)), "its path is longer than 107 bytes");
}

#[test]
fn several_starts_at_one_path_give_one_daemon() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("orinoco.sock");
    for number in 0..200 {
        if number % 2 == 0 {
            drop(UnixListener::bind(&path).expect("a socket"));
        }
        let sockets: Vec<_> = std::thread::scope(|scope| {
            let starts: Vec<_> =
                (0..3).map(|_| scope.spawn(|| LocalSocket::bind(&path, SocketSetting::CONTROL))).collect();
            starts.into_iter().map(|start| start.join().expect("no panic")).collect()
        });
        assert_eq!(sockets.iter().filter(|socket| socket.is_ok()).count(), 1, "{sockets:?}");
        assert!(UnixStream::connect(&path).is_ok(), "the one that is there answers");
    }
}

#[test]
fn tcp_is_for_this_machine_only_and_the_port_must_be_free() {
    for address in ["0.0.0.0:0", "192.0.2.1:8002", "[::]:0", "[::ffff:127.0.0.1]:8002"] {
        let address: SocketAddr = address.parse().expect("an address");
        let fault = LoopbackListener::bind(address).expect_err("others would reach it");
        assert_eq!((fault.code.id, fault.cause.as_str()), ("E0901", "it is not a loopback address"));
    }
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let fault = LoopbackListener::bind(taken.local_addr().expect("its address")).expect_err("it is taken");
    assert_eq!(fault.next, "choose a free port for `listen` under [control]");
}
