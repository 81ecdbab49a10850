//! The verbs that are used: thin calls of libibverbs, which the crate below opens at run time.

#![expect(
    unsafe_code,
    reason = "the verbs are C functions with raw handles, and devices write to the memory"
)]

use std::ffi::CStr;
use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::os::fd::BorrowedFd;
use std::ptr::{self, null_mut};
use std::sync::Arc;

use rdma_mummy_sys as sys;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::process::{Resource, getrlimit};

use super::announcement::ANNOUNCEMENT_BYTES;
use super::device::{COLLECTED_MAX, Completion, Device, POSTED_MAX, What, Window, Write};
use super::endpoint::Endpoint;
use super::error::RdmaError;
use super::flow::{ANNOUNCEMENT_STRIDE, ANNOUNCEMENTS_MAX, ARRIVALS_MAX, Area, RING_BYTES, TARGET_BYTES};
use super::mtu::Mtu;
use super::port::{RdmaPort, address_of};
use super::slots::SLOTS;
use crate::message::MappedMemory;

/// Bytes of short writes, which the processor gives to the device itself, if that allows it.
const INLINE_BYTES: u32 = 256;
/// Entries of a table of GIDs that are looked at: a place must fit into a byte.
const GIDS_MAX: u32 = 256;
/// Access to registered memory: a peer writes, windows are opened for its writes, or no peer has access.
const REMOTE_WRITE: u32 = sys::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
const WINDOWS: u32 = sys::ibv_access_flags::IBV_ACCESS_MW_BIND.0;
const OWN: u32 = 0;
const ROCE_V2: u32 = 2;
const ETHERNET: u8 = 2;
/// Errors of the library's loader: it is not there, or lacks a function.
const NOT_LOADED: i32 = 95;
/// Packets that nobody acknowledges are sent again after 1.07 s (4.096 us * 2^18), seven times. A gap is noticed at once, and a rank that is
/// gone by its missing life signs; and Soft-RoCE sends its window again each time this has passed, whether something is lost or not.
const TIMEOUT: u8 = 18;
const RETRIES: u8 = 7;
/// Receives are always posted before the peer may write. If one is not all the same, the device tries again after 0.64 ms, without end.
const NOT_READY_TIMER: u8 = 12;
const NOT_READY_RETRIES: u8 = 7;
const HOPS_MAX: u8 = 64;

/// Counters of what a rank did by RDMA since it joined.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RdmaCounters {
    /// Registrations of memory: two per peer when ranks join, and one per peer for each vector and working memory that is allocated.
    pub registrations: u64,
    /// Writes into memory of peers.
    pub writes: u64,
    /// Zero-copy writes among them.
    pub direct_writes: u64,
    /// Requests to the device: writes, and windows that were opened and closed for direct writes of peers.
    pub requests: u64,
    /// Bytes copied into staging memory and out of rings. Later copies within this rank are not counted.
    pub copied_bytes: u64,
    /// Calls of `ibv_post_send`.
    pub doorbells: u64,
    /// Send completions: every 16th request is signaled.
    pub completions: u64,
    /// Receive completions: one per write of a peer.
    pub arrivals: u64,
}

/// Lists the ports of all devices.
///
/// # Errors
/// If the library is missing, if the kernel gives no access, or if there is no device.
pub fn rdma_ports() -> Result<Vec<RdmaPort>, RdmaError> {
    let mut ports = Vec::new();
    for_each_device(|device, name| {
        // SAFETY: the device is one of the list, which `for_each_device` keeps until this returns.
        let context = unsafe { sys::ibv_open_device(device) };
        if context.is_null() {
            return Err(fault("opening", name));
        }
        let found = ports_of(context, name);
        // SAFETY: opened above, and nothing was made of it that is still there.
        unsafe { sys::ibv_close_device(context) };
        ports.extend(found?);
        Ok(())
    })?;
    if ports.is_empty() { Err(RdmaError::NoDevice) } else { Ok(ports) }
}

fn for_each_device(
    mut each: impl FnMut(*mut sys::ibv_device, &str) -> Result<(), RdmaError>,
) -> Result<(), RdmaError> {
    let mut count = 0;
    // SAFETY: it writes the number of devices to `count`.
    let list = unsafe { sys::ibv_get_device_list(&mut count) };
    if list.is_null() {
        let error = io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            Some(NOT_LOADED) => RdmaError::NoLibrary,
            _ => RdmaError::NoAccess(error),
        });
    }
    let count = usize::try_from(count).unwrap_or(0);
    let result = (0..count).try_for_each(|at| {
        // SAFETY: the list has `count` devices, and is freed below only.
        let device = unsafe { *list.add(at) };
        // SAFETY: the device's name is a C string that lives as long as the list.
        let name = unsafe { CStr::from_ptr(sys::ibv_get_device_name(device)) }.to_string_lossy();
        each(device, &name)
    });
    // SAFETY: the list came from `ibv_get_device_list`; devices that are open keep what they need.
    unsafe { sys::ibv_free_device_list(list) };
    result
}

fn ports_of(context: *mut sys::ibv_context, name: &str) -> Result<Vec<RdmaPort>, RdmaError> {
    // SAFETY: numbers and arrays of numbers, for which zeros are valid.
    let mut device: sys::ibv_device_attr = unsafe { zeroed() };
    // SAFETY: the context is open, and `device` has the type that is written.
    if unsafe { sys::ibv_query_device(context, &mut device) } != 0 {
        return Err(fault("querying", name));
    }
    (1..=device.phys_port_cnt).map(|number| port_of(context, name, number)).collect()
}

fn port_of(context: *mut sys::ibv_context, name: &str, number: u8) -> Result<RdmaPort, RdmaError> {
    // SAFETY: numbers, for which zeros are valid.
    let mut port: sys::ibv_port_attr = unsafe { zeroed() };
    // SAFETY: the context is open, and `port` has the type that is written.
    if unsafe { sys::ibv_query_port(context, number, &mut port) } != 0 {
        return Err(fault("querying a port", name));
    }
    let gids = u32::try_from(port.gid_tbl_len).unwrap_or(0).min(GIDS_MAX);
    let mut addresses = Vec::new();
    for place in 0..gids {
        // SAFETY: numbers and a union of them, for which zeros are valid.
        let mut entry: sys::ibv_gid_entry = unsafe { zeroed() };
        // SAFETY: the context is open, and `entry` has the type and the size that are written.
        let answer = unsafe { sys::ibv_query_gid_ex(context, u32::from(number), place, &mut entry, 0) };
        if answer == 0 && entry.gid_type == ROCE_V2 {
            // SAFETY: all members of the union are sixteen bytes of any value.
            let gid = unsafe { entry.gid.raw };
            addresses.push((place as u8, address_of(gid)));
        }
    }
    Ok(RdmaPort {
        device: name.to_owned(),
        number,
        is_active: port.state == sys::ibv_port_state::IBV_PORT_ACTIVE,
        is_ethernet: port.link_layer == ETHERNET,
        mtu: u8::try_from(port.active_mtu).ok().and_then(Mtu::from_code),
        addresses,
    })
}

fn fault(action: &'static str, device: &str) -> RdmaError {
    fault_of(action, device, io::Error::last_os_error())
}

fn fault_of(action: &'static str, device: &str, source: io::Error) -> RdmaError {
    RdmaError::Device { action, device: device.to_owned(), source }
}

/// An open device, with a queue pair for each peer, and the rings' memory.
pub(super) struct Verbs {
    device: String,
    context: *mut sys::ibv_context,
    channel: *mut sys::ibv_comp_channel,
    completions: *mut sys::ibv_cq,
    /// Memory of all links: for each peer this rank's ring, and the staging memory of what is written to the peer's.
    memory: *mut u8,
    memory_bytes: usize,
    /// By peer; none for this rank itself.
    pairs: Vec<Option<Pair>>,
    vectors: Vec<Vectors>,
    pub(super) counters: RdmaCounters,
}

/// A queue pair. It has a protection domain of its own, so that the ring's key is of use on this queue pair only.
struct Pair {
    domain: *mut sys::ibv_pd,
    /// Registration of what the peer writes to.
    ring: *mut sys::ibv_mr,
    /// Registration of the staging memory, to which no peer has access.
    staging: *mut sys::ibv_mr,
    pair: *mut sys::ibv_qp,
    /// Windows for the peer's writes to vectors; none if the device has no windows.
    windows: Vec<*mut sys::ibv_mw>,
    inline_bytes: usize,
    /// The peer's ring and its key.
    target: u64,
    target_key: u32,
}

/// Memory of vectors, and by peer its registration, which is null for this rank itself.
struct Vectors {
    memory: Arc<MappedMemory>,
    regions: Vec<*mut sys::ibv_mr>,
}

/// Bytes of memory for each peer: what it writes to, and staging memory of what is written to its own.
const LINK_BYTES: usize = 2 * TARGET_BYTES;
const _: () = assert!(ANNOUNCEMENT_BYTES <= ANNOUNCEMENT_STRIDE);

// SAFETY: the handles belong to this value alone, and libibverbs lets any thread use them.
unsafe impl Send for Verbs {}

impl Verbs {
    /// Opens a device for so many ranks.
    pub(super) fn open(device: &str, ranks: usize) -> Result<Self, RdmaError> {
        let mut context: *mut sys::ibv_context = null_mut();
        for_each_device(|found, name| {
            if name == device && context.is_null() {
                // SAFETY: the device is one of the list, which `for_each_device` keeps until this returns.
                context = unsafe { sys::ibv_open_device(found) };
                if context.is_null() {
                    return Err(fault("opening", name));
                }
            }
            Ok(())
        })?;
        if context.is_null() {
            return Err(RdmaError::NoDevice);
        }
        // From now on `drop` closes what is open.
        let mut verbs = Self {
            device: device.to_owned(),
            context,
            channel: null_mut(),
            completions: null_mut(),
            memory: null_mut(),
            memory_bytes: ranks * LINK_BYTES,
            pairs: (0..ranks).map(|_| None).collect(),
            vectors: Vec::new(),
            counters: RdmaCounters::default(),
        };
        verbs.open_queue(ranks)?;
        verbs.map_memory()?;
        Ok(verbs)
    }

    /// Opens the queue of completions, with a descriptor to wait for them.
    fn open_queue(&mut self, ranks: usize) -> Result<(), RdmaError> {
        // SAFETY: the context is open.
        self.channel = unsafe { sys::ibv_create_comp_channel(self.context) };
        if self.channel.is_null() {
            return Err(fault("opening a channel of completions", &self.device));
        }
        rustix::io::ioctl_fionbio(self.descriptor(), true)
            .map_err(|error| fault_of("setting up a channel of completions", &self.device, error.into()))?;
        let entries = i32::try_from(ranks * (SLOTS + ARRIVALS_MAX)).expect("few ranks");
        // SAFETY: context and channel are open, and live longer than the queue (`drop`).
        self.completions = unsafe { sys::ibv_create_cq(self.context, entries, null_mut(), self.channel, 0) };
        if self.completions.is_null() {
            return Err(fault("opening a queue of completions", &self.device));
        }
        Ok(())
    }

    fn map_memory(&mut self) -> Result<(), RdmaError> {
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        // Shared: with a private mapping, copy-on-write after a fork could give this process other pages than the registered ones.
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let memory = unsafe { mmap_anonymous(null_mut(), self.memory_bytes, flags, MapFlags::SHARED) };
        let memory =
            memory.map_err(|error| fault_of("mapping memory for rings", &self.device, error.into()))?;
        self.memory = memory.cast();
        Ok(())
    }

    /// Creates the queue pair for a peer. Returns its number, and the address and key of this rank's ring for that peer.
    pub(super) fn add_pair(&mut self, peer: usize) -> Result<(u32, u64, u32), RdmaError> {
        // SAFETY: the context is open.
        let domain = unsafe { sys::ibv_alloc_pd(self.context) };
        if domain.is_null() {
            return Err(fault("making a protection domain", &self.device));
        }
        let pair = Pair {
            domain,
            ring: null_mut(),
            staging: null_mut(),
            pair: null_mut(),
            windows: allocate_windows(domain),
            inline_bytes: 0,
            target: 0,
            target_key: 0,
        };
        self.pairs[peer] = Some(pair);
        let memory = self.link(peer);
        let key = self.register_link(peer, domain, memory)?;
        Ok((self.create_pair(peer)?, memory as u64, key))
    }

    /// Registers the memory of a link: the peer has access to its first part only. Returns the key for that.
    fn register_link(
        &mut self,
        peer: usize,
        domain: *mut sys::ibv_pd,
        memory: *mut u8,
    ) -> Result<u32, RdmaError> {
        let links = self.pairs.len() - 1;
        let of_all = |error| match error {
            RdmaError::Locked { limit, source, .. } => {
                RdmaError::Locked { bytes: links * LINK_BYTES, limit, source }
            }
            other => other,
        };
        // SAFETY: the memory of a link has LINK_BYTES bytes, two such parts, and is mapped until `drop` has ended its registrations.
        let (ring, staging) = unsafe {
            let ring = self.register(domain, memory, TARGET_BYTES, REMOTE_WRITE).map_err(of_all)?;
            self.pairs[peer].as_mut().expect("a pair").ring = ring;
            (ring, self.register(domain, memory.add(TARGET_BYTES), TARGET_BYTES, OWN).map_err(of_all)?)
        };
        self.pairs[peer].as_mut().expect("a pair").staging = staging;
        // SAFETY: a registration that succeeded is a structure that lives until it is ended.
        Ok(unsafe { (*ring).rkey })
    }

    /// Registers memory for the queue pair of a peer: for its writes, for windows through which it writes, or for writes to it.
    ///
    /// # Safety
    /// The domain is open, and the memory is mapped until the registration is ended.
    unsafe fn register(
        &mut self,
        domain: *mut sys::ibv_pd,
        memory: *mut u8,
        bytes: usize,
        access: u32,
    ) -> Result<*mut sys::ibv_mr, RdmaError> {
        let access = sys::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 | access;
        // SAFETY: as the caller says.
        let region = unsafe { sys::ibv_reg_mr(domain, memory.cast(), bytes, access as i32) };
        if region.is_null() {
            let source = io::Error::last_os_error();
            return Err(match getrlimit(Resource::Memlock).current {
                Some(limit) if source.raw_os_error() == Some(rustix::io::Errno::NOMEM.raw_os_error()) => {
                    RdmaError::Locked { bytes: (self.pairs.len() - 1) * bytes, limit, source }
                }
                _ => fault_of("registering memory", &self.device, source),
            });
        }
        self.counters.registrations += 1;
        Ok(region)
    }

    /// Registers memory of vectors for all peers. Nothing is to be on its way: memory that nobody else holds any more is given up.
    pub(super) fn register_vectors(&mut self, memory: &Arc<MappedMemory>) -> Result<(), RdmaError> {
        self.vectors.retain(|vectors| Arc::strong_count(&vectors.memory) > 1);
        let mut vectors = Vectors { memory: Arc::clone(memory), regions: Vec::new() };
        for peer in 0..self.pairs.len() {
            let region = match self.pairs[peer].as_ref().map(|pair| pair.domain) {
                // SAFETY: the domain is open, and `vectors` holds the memory until it has ended the registration.
                Some(domain) => unsafe {
                    self.register(domain, memory.base().as_ptr(), memory.bytes(), WINDOWS)?
                },
                None => null_mut(),
            };
            vectors.regions.push(region);
        }
        self.vectors.push(vectors);
        Ok(())
    }

    /// Destroys all windows and queue pairs: no device reads or writes memory of this rank any more.
    pub(super) fn halt(&mut self) {
        for pair in self.pairs.iter_mut().flatten() {
            // Windows come first: one that is open keeps its queue pair and its memory.
            for window in pair.windows.drain(..) {
                // SAFETY: the window exists, and is never used again.
                unsafe { sys::ibv_dealloc_mw(window) };
            }
            if !pair.pair.is_null() {
                // SAFETY: the queue pair exists, and is never used again.
                unsafe { sys::ibv_destroy_qp(pair.pair) };
                pair.pair = null_mut();
            }
        }
    }

    /// Takes note of requests that the device has taken.
    fn note_posted(&mut self, peer: usize, writes: &[Write]) {
        let pair = self.pairs[peer].as_mut().expect("a pair");
        let counters = &mut self.counters;
        counters.doorbells += 1;
        for write in writes {
            counters.requests += 1;
            match write.what {
                What::Open(Window { place, key, .. }) => {
                    // SAFETY: the window exists until it is destroyed (`halt`), and nobody else uses its structure meanwhile.
                    unsafe { (*pair.windows[place]).rkey = key };
                }
                What::Close(_) => {}
                What::Direct(_) => {
                    counters.writes += 1;
                    counters.direct_writes += 1;
                }
                What::Ring(_) | What::Announcement(_) => counters.writes += 1,
            }
        }
    }

    /// The registration of bytes of a vector for a peer.
    fn region(&self, peer: usize, address: usize, len: usize) -> Option<*mut sys::ibv_mr> {
        let vectors = self.vectors.iter().find(|vectors| vectors.memory.holds(address, len))?;
        Some(vectors.regions[peer]).filter(|region| !region.is_null())
    }

    /// The queue pair of a peer.
    fn pair(&self, peer: usize) -> io::Result<&Pair> {
        let pair = self.pairs[peer].as_ref().filter(|pair| !pair.pair.is_null());
        pair.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn create_pair(&mut self, peer: usize) -> Result<u32, RdmaError> {
        let pair = self.pairs[peer].as_mut().expect("a pair");
        // Devices that have no inline writes refuse to be asked for them.
        for inline_bytes in [INLINE_BYTES, 0] {
            // SAFETY: numbers and pointers, for which zeros are valid.
            let mut wanted: sys::ibv_qp_init_attr = unsafe { zeroed() };
            wanted.send_cq = self.completions;
            wanted.recv_cq = self.completions;
            wanted.qp_type = sys::ibv_qp_type::IBV_QPT_RC;
            wanted.cap.max_send_wr = SLOTS as u32;
            wanted.cap.max_recv_wr = ARRIVALS_MAX as u32;
            wanted.cap.max_send_sge = 1;
            wanted.cap.max_recv_sge = 1;
            wanted.cap.max_inline_data = inline_bytes;
            // SAFETY: domain and queue are open, and live longer than the queue pair (`drop`).
            pair.pair = unsafe { sys::ibv_create_qp(pair.domain, &mut wanted) };
            if !pair.pair.is_null() {
                pair.inline_bytes = wanted.cap.max_inline_data as usize;
                // SAFETY: a queue pair that was made is a structure that lives until it is destroyed.
                return Ok(unsafe { (*pair.pair).qp_num });
            }
        }
        Err(fault("making a queue pair", &self.device))
    }

    /// Connects the queue pair with its peer's, over a port and a place in its table of GIDs. All receives are posted then.
    pub(super) fn connect(
        &mut self,
        peer: usize,
        port: u8,
        gid_place: u8,
        own: &Endpoint,
        theirs: &Endpoint,
    ) -> Result<(), RdmaError> {
        let pair = self.pairs[peer].as_mut().expect("a pair");
        (pair.target, pair.target_key) = (theirs.ring, theirs.key);
        let pair = pair.pair;
        self.modify(pair, initial(port))?;
        self.post_receives(peer, ARRIVALS_MAX)
            .map_err(|error| fault_of("posting receives", &self.device, error))?;
        self.modify(pair, ready_to_receive(port, gid_place, own, theirs))?;
        self.modify(pair, ready_to_send(own))
    }

    fn modify(
        &self,
        pair: *mut sys::ibv_qp,
        (mut attributes, mask): (sys::ibv_qp_attr, sys::ibv_qp_attr_mask),
    ) -> Result<(), RdmaError> {
        // SAFETY: the queue pair exists, and the mask names attributes that were set.
        match unsafe { sys::ibv_modify_qp(pair, &mut attributes, mask.0 as i32) } {
            0 => Ok(()),
            code => {
                let source = io::Error::from_raw_os_error(code);
                Err(fault_of("connecting a queue pair", &self.device, source))
            }
        }
    }

    /// Has the descriptor become readable at the next completion. Those that have come already do not count: look for them afterwards.
    pub(super) fn notify(&self) {
        // SAFETY: the queue is open. If the device refused it, waits would end by their time.
        unsafe { sys::ibv_req_notify_cq(self.completions, 0) };
    }

    /// Takes notifications, so that the descriptor is not readable any more.
    pub(super) fn quiet(&self) {
        let (mut queue, mut context) = (null_mut(), null_mut());
        let mut count = 0;
        // SAFETY: the channel is open and does not block; both places are written.
        while unsafe { sys::ibv_get_cq_event(self.channel, &mut queue, &mut context) } == 0 {
            count += 1;
        }
        // SAFETY: so many notifications were taken, all of this queue, the only one of the channel.
        unsafe { sys::ibv_ack_cq_events(self.completions, count) };
    }

    /// Readable when a completion has come that [`Verbs::notify`] asked for.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is open as long as `self` lives.
        unsafe { BorrowedFd::borrow_raw((*self.channel).fd) }
    }

    /// First byte of the memory of a link.
    fn link(&self, peer: usize) -> *mut u8 {
        assert!(peer < self.pairs.len(), "rank {peer} is none of the group");
        // SAFETY: the mapping has LINK_BYTES bytes for each rank.
        unsafe { self.memory.add(peer * LINK_BYTES) }
    }
}

impl Device for Verbs {
    fn post(&mut self, peer: usize, writes: &[Write]) -> io::Result<()> {
        assert!((1..=POSTED_MAX).contains(&writes.len()), "{} writes", writes.len());
        let (pair, staging) = (self.pair(peer)?, self.link(peer) as u64 + TARGET_BYTES as u64);
        // SAFETY: numbers, pointers and unions of them, for which zeros are valid.
        let (mut areas, mut requests): ([sys::ibv_sge; POSTED_MAX], [sys::ibv_send_wr; POSTED_MAX]) =
            unsafe { (zeroed(), zeroed()) };
        let mut next = null_mut();
        for ((write, area), request) in writes.iter().zip(&mut areas).zip(&mut requests).rev() {
            request.wr_id = work_id(peer, write.frees);
            request.next = next;
            let region = match write.what {
                What::Open(Window { address, len, .. }) => self.region(peer, address as usize, len),
                _ => None,
            };
            pair.fill(request, area, write, staging, region.unwrap_or(null_mut()));
            if write.frees.is_some() {
                request.send_flags |= sys::ibv_send_flags::IBV_SEND_SIGNALED.0;
            }
            next = request;
        }
        let mut refused = null_mut();
        // The device reads staging memory at bytes that nobody changes until the peer has read them (`Flow`); or a vector that is borrowed by an
        // operation, which ends when the peer has read it or when the queue pair is gone (`Links::hold_vectors`). All of it is registered.
        // SAFETY: the queue pair is connected. `next` is the first of a list of requests whose last has no next one; they and their
        // areas live until this returns. For the memory of the requests, see above.
        match unsafe { sys::ibv_post_send(pair.pair, next, &mut refused) } {
            0 => {
                self.note_posted(peer, writes);
                Ok(())
            }
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }

    fn post_receives(&mut self, peer: usize, count: usize) -> io::Result<()> {
        let pair = self.pair(peer)?.pair;
        for _ in 0..count {
            let mut receive = sys::ibv_recv_wr {
                wr_id: work_id(peer, None),
                next: null_mut(),
                sg_list: null_mut(),
                num_sge: 0,
            };
            let mut refused = null_mut();
            // SAFETY: the queue pair exists; the request is copied before this returns.
            match unsafe { sys::ibv_post_recv(pair, &mut receive, &mut refused) } {
                0 => {}
                code => return Err(io::Error::from_raw_os_error(code)),
            }
        }
        Ok(())
    }

    fn collect(&mut self, into: &mut Vec<Completion>) -> usize {
        let mut found = [const { MaybeUninit::<sys::ibv_wc>::uninit() }; COLLECTED_MAX];
        // SAFETY: the queue is open, and `found` has room for so many.
        let count =
            unsafe { sys::ibv_poll_cq(self.completions, COLLECTED_MAX as i32, found.as_mut_ptr().cast()) };
        let found = &found[..usize::try_from(count).unwrap_or(0)];
        for completion in found {
            // SAFETY: the first `count` were written.
            let completion = completion_of(unsafe { completion.assume_init_ref() });
            match completion {
                Completion::Written { .. } => self.counters.completions += 1,
                Completion::Arrived { .. } => self.counters.arrivals += 1,
                Completion::Broken { .. } => {}
            }
            into.push(completion);
        }
        found.len()
    }

    fn stage(&mut self, peer: usize, start: usize, bytes: &[u8]) {
        assert!(start + bytes.len() <= RING_BYTES, "{} bytes at {start} are not in a ring", bytes.len());
        self.counters.copied_bytes += bytes.len() as u64;
        let staging = self.link(peer).wrapping_add(TARGET_BYTES + start);
        // SAFETY: the staging memory of a link has RING_BYTES bytes at least. Nobody holds a reference to them.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), staging, bytes.len()) };
    }

    fn unload(&mut self, peer: usize, start: usize, into: &mut [u8]) {
        assert!(start + into.len() <= RING_BYTES, "{} bytes at {start} are not in a ring", into.len());
        self.counters.copied_bytes += into.len() as u64;
        // SAFETY: the ring has RING_BYTES bytes. They are copied as raw memory, without a reference to them; a device that writes at
        // the same time changes the values, no more.
        unsafe { ptr::copy_nonoverlapping(self.link(peer).add(start), into.as_mut_ptr(), into.len()) };
    }

    fn stage_announcement(&mut self, peer: usize, place: usize, announcement: &[u8; ANNOUNCEMENT_BYTES]) {
        let staging = self.link(peer).wrapping_add(TARGET_BYTES + announcement_start(place));
        // SAFETY: the place is inside the memory of the link (`announcement_start`), behind the staging memory of the ring.
        unsafe { ptr::copy_nonoverlapping(announcement.as_ptr(), staging, ANNOUNCEMENT_BYTES) };
    }

    fn announcement(&self, peer: usize, place: usize) -> [u8; ANNOUNCEMENT_BYTES] {
        let (from, mut bytes) = (self.link(peer).wrapping_add(announcement_start(place)), [0; _]);
        // SAFETY: the place is inside of what the peer writes to (`announcement_start`). As in `unload`.
        unsafe { ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), ANNOUNCEMENT_BYTES) };
        bytes
    }

    fn key(&self, peer: usize, bytes: &[u8]) -> Option<u32> {
        let region = self.region(peer, bytes.as_ptr().addr(), bytes.len())?;
        // SAFETY: a registration that succeeded is a structure that lives until it is ended.
        Some(unsafe { (*region).lkey })
    }

    fn window(&self, peer: usize, place: usize, bytes: &mut [u8]) -> Option<Window> {
        let address = bytes.as_mut_ptr().addr();
        self.region(peer, address, bytes.len())?;
        let window = *self.pairs[peer].as_ref()?.windows.get(place)?;
        // SAFETY: a window that was allocated is a structure that lives until it is destroyed (`halt`).
        let key = unsafe { sys::ibv_inc_rkey((*window).rkey) };
        Some(Window { place, key, address: address as u64, len: bytes.len() })
    }
}

impl Pair {
    /// Fills a request. `staging`: address of the link's staging memory; `region`: registration of the memory of a window.
    fn fill(
        &self,
        request: &mut sys::ibv_send_wr,
        area: &mut sys::ibv_sge,
        write: &Write,
        staging: u64,
        region: *mut sys::ibv_mr,
    ) {
        let same = |start: usize, len: usize| {
            // SAFETY: the structure of a registration lives until that is ended.
            let lkey = unsafe { (*self.staging).lkey };
            let from = sys::ibv_sge { addr: staging + start as u64, length: len as u32, lkey };
            (from, sys::rdma_t { remote_addr: self.target + start as u64, rkey: self.target_key })
        };
        let (from, to) = match write.what {
            What::Open(window) => return open(request, self.windows[window.place], &window, region),
            What::Close(place) => return close(request, self.windows[place]),
            What::Ring(Area { start, len }) => {
                assert!(start + len <= RING_BYTES, "{len} bytes at {start} are not in a ring");
                same(start, len)
            }
            What::Announcement(place) => same(announcement_start(place), ANNOUNCEMENT_BYTES),
            What::Direct(direct) => {
                let length = u32::try_from(direct.len).expect("a part of a payload");
                let from = sys::ibv_sge { addr: direct.from, length, lkey: direct.from_key };
                (from, sys::rdma_t { remote_addr: direct.to, rkey: direct.to_key })
            }
        };
        *area = from;
        request.sg_list = area;
        request.num_sge = i32::from(from.length > 0);
        request.opcode = sys::ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM;
        if (1..=self.inline_bytes).contains(&(from.length as usize)) {
            request.send_flags = sys::ibv_send_flags::IBV_SEND_INLINE.0;
        }
        request.imm_data_invalidated_rkey_union.imm_data = write.immediate.to_be();
        request.wr.rdma = to;
    }
}

/// Place of an announcement in what a peer writes to.
fn announcement_start(place: usize) -> usize {
    assert!(place < ANNOUNCEMENTS_MAX, "there is no place {place} for announcements");
    RING_BYTES + place * ANNOUNCEMENT_STRIDE
}

impl Drop for Vectors {
    fn drop(&mut self) {
        for region in self.regions.iter().filter(|region| !region.is_null()) {
            // SAFETY: each was registered once, and is ended here only: while the domains are open (`Verbs::drop`). The memory is mapped.
            unsafe { sys::ibv_dereg_mr(*region) };
        }
    }
}

impl Drop for Verbs {
    fn drop(&mut self) {
        self.halt();
        self.vectors.clear();
        // SAFETY: each handle that is not null is open, and is closed once, after everything that was made with it:
        // registrations, domains, the queue, its channel, the device. No device knows the memory when it is unmapped.
        unsafe {
            for pair in self.pairs.iter().flatten() {
                for region in [pair.ring, pair.staging] {
                    if !region.is_null() {
                        sys::ibv_dereg_mr(region);
                    }
                }
                sys::ibv_dealloc_pd(pair.domain);
            }
            if !self.completions.is_null() {
                sys::ibv_destroy_cq(self.completions);
            }
            if !self.channel.is_null() {
                sys::ibv_destroy_comp_channel(self.channel);
            }
            sys::ibv_close_device(self.context);
            if !self.memory.is_null() {
                // It fails only if it is no mapping.
                let _ = munmap(self.memory.cast(), self.memory_bytes);
            }
        }
    }
}

/// Allocates windows that belong to a queue pair when they are open (type 2). None if the device has no such windows: long messages go through
/// the ring then.
fn allocate_windows(domain: *mut sys::ibv_pd) -> Vec<*mut sys::ibv_mw> {
    // SAFETY: the domain is open.
    let allocate = |_| unsafe { sys::ibv_alloc_mw(domain, sys::ibv_mw_type::IBV_MW_TYPE_2) };
    (0..ANNOUNCEMENTS_MAX).map(allocate).take_while(|window| !window.is_null()).collect()
}

/// Makes the request to open a window of registered memory.
fn open(request: &mut sys::ibv_send_wr, mw: *mut sys::ibv_mw, window: &Window, region: *mut sys::ibv_mr) {
    request.opcode = sys::ibv_wr_opcode::IBV_WR_BIND_MW;
    request.bind_mw_tso_union.bind_mw = sys::bind_mw_t {
        mw,
        rkey: window.key,
        bind_info: sys::ibv_mw_bind_info {
            mr: region,
            addr: window.address,
            length: window.len as u64,
            mw_access_flags: REMOTE_WRITE,
        },
    };
}

/// Makes the request to close a window.
fn close(request: &mut sys::ibv_send_wr, mw: *mut sys::ibv_mw) {
    request.opcode = sys::ibv_wr_opcode::IBV_WR_LOCAL_INV;
    // SAFETY: the window exists until it is destroyed (`halt`).
    request.imm_data_invalidated_rkey_union.invalidated_rkey = unsafe { (*mw).rkey };
}

/// Number of a work request, which comes back with its completion: the peer, and for a write the slots that its completion frees.
fn work_id(peer: usize, frees: Option<usize>) -> u64 {
    (peer as u64) << 32 | frees.unwrap_or(0) as u64
}

/// Requests that have completions.
const REQUESTS: [sys::ibv_wc_opcode::Type; 3] = [
    sys::ibv_wc_opcode::IBV_WC_RDMA_WRITE,
    sys::ibv_wc_opcode::IBV_WC_BIND_MW,
    sys::ibv_wc_opcode::IBV_WC_LOCAL_INV,
];

fn completion_of(completion: &sys::ibv_wc) -> Completion {
    let (peer, freed) = ((completion.wr_id >> 32) as usize, completion.wr_id as u32 as usize);
    if completion.status != sys::ibv_wc_status::IBV_WC_SUCCESS {
        Completion::Broken { peer }
    } else if completion.opcode == sys::ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM {
        // SAFETY: both members of the union are numbers of any value.
        let immediate = unsafe { completion.imm_data_invalidated_rkey_union.imm_data };
        Completion::Arrived { peer, immediate: u32::from_be(immediate) }
    } else if REQUESTS.contains(&completion.opcode) {
        Completion::Written { peer, freed }
    } else {
        // A peer that sends instead of writing takes a receive that has no memory.
        Completion::Broken { peer }
    }
}

fn no_attributes() -> sys::ibv_qp_attr {
    // SAFETY: numbers and a union of them, for which zeros are valid.
    unsafe { zeroed() }
}

fn initial(port: u8) -> (sys::ibv_qp_attr, sys::ibv_qp_attr_mask) {
    use sys::ibv_qp_attr_mask as mask;
    let attributes = sys::ibv_qp_attr {
        qp_state: sys::ibv_qp_state::IBV_QPS_INIT,
        port_num: port,
        qp_access_flags: sys::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0,
        ..no_attributes()
    };
    let set = mask::IBV_QP_STATE | mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_ACCESS_FLAGS;
    (attributes, set)
}

fn ready_to_receive(
    port: u8,
    gid_place: u8,
    own: &Endpoint,
    theirs: &Endpoint,
) -> (sys::ibv_qp_attr, sys::ibv_qp_attr_mask) {
    use sys::ibv_qp_attr_mask as mask;
    let mut attributes = sys::ibv_qp_attr {
        qp_state: sys::ibv_qp_state::IBV_QPS_RTR,
        path_mtu: own.mtu.min(theirs.mtu).code().into(),
        dest_qp_num: theirs.queue_pair,
        rq_psn: theirs.first_packet,
        max_dest_rd_atomic: 1,
        min_rnr_timer: NOT_READY_TIMER,
        ..no_attributes()
    };
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.port_num = port;
    attributes.ah_attr.grh.dgid = sys::ibv_gid { raw: theirs.gid };
    attributes.ah_attr.grh.sgid_index = gid_place;
    attributes.ah_attr.grh.hop_limit = HOPS_MAX;
    let set = mask::IBV_QP_STATE
        | mask::IBV_QP_AV
        | mask::IBV_QP_PATH_MTU
        | mask::IBV_QP_DEST_QPN
        | mask::IBV_QP_RQ_PSN
        | mask::IBV_QP_MAX_DEST_RD_ATOMIC
        | mask::IBV_QP_MIN_RNR_TIMER;
    (attributes, set)
}

fn ready_to_send(own: &Endpoint) -> (sys::ibv_qp_attr, sys::ibv_qp_attr_mask) {
    use sys::ibv_qp_attr_mask as mask;
    let attributes = sys::ibv_qp_attr {
        qp_state: sys::ibv_qp_state::IBV_QPS_RTS,
        timeout: TIMEOUT,
        retry_cnt: RETRIES,
        rnr_retry: NOT_READY_RETRIES,
        sq_psn: own.first_packet,
        max_rd_atomic: 1,
        ..no_attributes()
    };
    let set = mask::IBV_QP_STATE
        | mask::IBV_QP_TIMEOUT
        | mask::IBV_QP_RETRY_CNT
        | mask::IBV_QP_RNR_RETRY
        | mask::IBV_QP_SQ_PSN
        | mask::IBV_QP_MAX_QP_RD_ATOMIC;
    (attributes, set)
}
