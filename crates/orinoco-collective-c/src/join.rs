//! Joining: a function for each transport.
#![expect(unsafe_code, reason = "C calls these functions by name, with addresses")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the conditions stand with the types and functions, for readers of the header"
)]

use std::ffi::c_char;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use orinoco_collective::{
    GroupKey, PcieGroup, PcieSettings, RdmaGroup, RdmaSettings, Rendezvous, Security, SharedPorts, ShmGroup,
    TcpGroup, TcpSettings,
};

use crate::fault::{Fault, OrinocoStatus, status};
use crate::group::{AnyGroup, OrinocoGroup};
use crate::settings::{OrinocoSettings, messages, shared_memory};
use crate::vectors::{give, text};

/// Joins a group of ranks on one machine, over shared memory, through a file in /dev/shm that all name. Returns when all have
/// joined. `settings` may be NULL. The group is to be left by `orinoco_leave`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_join_shm(
    path: *const c_char,
    rank: usize,
    ranks: usize,
    settings: *const OrinocoSettings,
    group: *mut *mut OrinocoGroup,
) -> OrinocoStatus {
    status(|| {
        // SAFETY: the caller's pointers are what their types say.
        let (path, settings) = unsafe { (text(path, "the path")?, settings.as_ref()) };
        let joined = ShmGroup::join(Path::new(&path), rank, ranks, shared_memory(settings)?)?;
        // SAFETY: as above.
        unsafe { give_group(group, AnyGroup::Shm(Box::new(joined))) }
    })
}

/// Joins a group of ranks on any machines, over TCP, authenticated and, by default, encrypted. Returns when all have joined.
///
/// `rendezvous` is one of:
/// - `file:PATH`, for ranks of one machine;
/// - `IP:PORT`, the address of rank 0;
/// - `IP:PORT,IP:PORT,...`, the addresses of all ranks, in order;
/// - `shared:GROUP@SOCKET,IP:PORT,IP:PORT,...`, to use the ports of the daemons. GROUP is the name of the group, SOCKET this board's
///   `program_socket`, and each IP:PORT the daemon of one rank's board, in the order of ranks.
///
/// `key_file` is a file with the key of the group, which `orinoco_make_key` makes. It may be NULL with `file:PATH`, where rank 0 makes
/// a key. `settings` may be NULL. The group is to be left by `orinoco_leave`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_join_tcp(
    rendezvous: *const c_char,
    key_file: *const c_char,
    rank: usize,
    ranks: usize,
    settings: *const OrinocoSettings,
    group: *mut *mut OrinocoGroup,
) -> OrinocoStatus {
    status(|| {
        // SAFETY: the caller's pointers are what their types say.
        unsafe {
            let security = security(key_file, Security::FileKey)?;
            join_tcp(rendezvous, security, rank, ranks, settings, group)
        }
    })
}

/// Joins a group of ranks on one machine, over TCP, without authentication and encryption. Otherwise as `orinoco_join_tcp`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_join_tcp_plaintext(
    rendezvous: *const c_char,
    rank: usize,
    ranks: usize,
    settings: *const OrinocoSettings,
    group: *mut *mut OrinocoGroup,
) -> OrinocoStatus {
    status(|| {
        // SAFETY: the caller's pointers are what their types say.
        unsafe { join_tcp(rendezvous, Security::Plaintext, rank, ranks, settings, group) }
    })
}

/// Joins a group of ranks over RDMA (RoCE v2). They join over TCP, with `rendezvous` and `key_file` as for `orinoco_join_tcp`, and are
/// authenticated; after that, vectors are neither encrypted nor authenticated. Needs libibverbs and an RDMA device on every rank's machine.
/// The error says what is missing.
///
/// `device` is the name of the RDMA device, as `rdma link` lists it. With NULL, it is the one that has this rank's addresses of the TCP
/// connections. `settings` may be NULL. The group is to be left by `orinoco_leave`. It cannot be split or shrunk.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_join_rdma(
    rendezvous: *const c_char,
    key_file: *const c_char,
    device: *const c_char,
    rank: usize,
    ranks: usize,
    settings: *const OrinocoSettings,
    group: *mut *mut OrinocoGroup,
) -> OrinocoStatus {
    status(|| {
        // SAFETY: the caller's pointers are what their types say.
        let (rendezvous, security, settings) = unsafe {
            (text(rendezvous, "the rendezvous")?, security(key_file, Security::FileKey)?, settings.as_ref())
        };
        let device = match device.is_null() {
            true => None,
            // SAFETY: as above.
            false => Some(unsafe { text(device, "the device")? }),
        };
        let settings = RdmaSettings { security, device, messages: messages(settings, ranks)? };
        let joined = RdmaGroup::join(&parse_rendezvous(&rendezvous)?, rank, ranks, settings)?;
        // SAFETY: as above.
        unsafe { give_group(group, AnyGroup::Rdma(Box::new(joined))) }
    })
}

/// Joins a group of ranks through memory that all can map, at `path`: a PCI BAR that boards share
/// (`/sys/bus/pci/devices/0000:01:00.0/resource2`, or `resource2_wc`, which combines writes), or a file. One that does not exist is made by
/// rank 0, and removed when all have joined. One group at a time can use the memory. Ranks are authenticated when they join; after
/// that, messages are not encrypted.
///
/// `key_file` is a file with the key of the group, which `orinoco_make_key` makes. It may be NULL with an ordinary file: then ranks are not
/// authenticated. `settings` may be NULL. The group is to be left by `orinoco_leave`. It cannot be split or shrunk.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_join_pcie(
    path: *const c_char,
    key_file: *const c_char,
    rank: usize,
    ranks: usize,
    settings: *const OrinocoSettings,
    group: *mut *mut OrinocoGroup,
) -> OrinocoStatus {
    status(|| {
        // SAFETY: the caller's pointers are what their types say.
        let (path, security, settings) =
            unsafe { (text(path, "the path")?, security(key_file, Security::Plaintext)?, settings.as_ref()) };
        let settings = PcieSettings { security, messages: messages(settings, ranks)? };
        let joined = PcieGroup::join(Path::new(&path), rank, ranks, settings)?;
        // SAFETY: as above.
        unsafe { give_group(group, AnyGroup::Pcie(Box::new(joined))) }
    })
}

/// Makes a key for a group, in a new file that only this user can read. Every rank needs a copy of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_make_key(key_file: *const c_char) -> OrinocoStatus {
    status(|| {
        // SAFETY: the caller's pointer is what its type says.
        let path = unsafe { text(key_file, "the key file")? };
        Ok(GroupKey::generate()?.write(Path::new(&path))?)
    })
}

/// # Safety
/// The pointers are what their types say, or null.
unsafe fn join_tcp(
    rendezvous: *const c_char,
    security: Security,
    rank: usize,
    ranks: usize,
    settings: *const OrinocoSettings,
    group: *mut *mut OrinocoGroup,
) -> Result<(), Fault> {
    // SAFETY: the caller's.
    let (rendezvous, settings) = unsafe { (text(rendezvous, "the rendezvous")?, settings.as_ref()) };
    let settings = TcpSettings { security, messages: messages(settings, ranks)? };
    let joined = TcpGroup::join(&parse_rendezvous(&rendezvous)?, rank, ranks, settings)?;
    // SAFETY: the caller's.
    unsafe { give_group(group, AnyGroup::Tcp(Box::new(joined))) }
}

/// Reads the key of a group. Without a file, the security is the other one.
///
/// # Safety
/// There must be text that ends with a null character at the address, or it must be null.
unsafe fn security(key_file: *const c_char, without: Security) -> Result<Security, Fault> {
    if key_file.is_null() {
        return Ok(without);
    }
    // SAFETY: the caller's, and not null.
    let key_file = unsafe { text(key_file, "the key file")? };
    Ok(Security::GroupKey(GroupKey::read(Path::new(&key_file))?))
}

/// # Safety
/// `place` is null or a place for a pointer.
unsafe fn give_group(place: *mut *mut OrinocoGroup, group: AnyGroup) -> Result<(), Fault> {
    // SAFETY: the caller's.
    unsafe { give(place, OrinocoGroup::new(group), "the place for the group") }
}

fn parse_rendezvous(text: &str) -> Result<Rendezvous, Fault> {
    if let Some(path) = text.strip_prefix("file:") {
        return Ok(Rendezvous::File(PathBuf::from(path)));
    }
    let fault = || {
        Fault::argument(format!(
            "the rendezvous \"{text}\" is neither file:PATH nor IP:PORT nor a list of these nor shared:GROUP@SOCKET,IP:PORT,..."
        ))
    };
    let addresses = |list: &str| -> Result<Vec<SocketAddr>, Fault> {
        list.split(',').map(|address| address.trim().parse().map_err(|_| fault())).collect()
    };
    if let Some(rest) = text.strip_prefix("shared:") {
        let (port, list) = rest.split_once(',').ok_or_else(fault)?;
        let (group, socket) = port.split_once('@').ok_or_else(fault)?;
        let (group, socket) = (group.to_owned(), PathBuf::from(socket));
        return Ok(Rendezvous::SharedPorts(SharedPorts { group, addresses: addresses(list)?, socket }));
    }
    let addresses = addresses(text)?;
    Ok(match addresses[..] {
        [one] => Rendezvous::Address(one),
        _ => Rendezvous::List(addresses),
    })
}
