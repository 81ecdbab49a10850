//! TCP listener that only this machine reaches.

use std::net::{SocketAddr, TcpListener};

use orinoco_core::{Diagnosis, WithSubject, codes};

/// TCP listener on a loopback address.
#[derive(Debug)]
pub struct LoopbackListener {
    listener: TcpListener,
    address: SocketAddr,
}

impl LoopbackListener {
    /// Listens on `address`; port 0 takes a free port.
    ///
    /// # Errors
    ///
    /// [`codes::CONTROL_LISTEN`], if the address is not a loopback address, or is in use.
    pub fn bind(address: SocketAddr) -> Result<Self, Diagnosis> {
        if !address.ip().is_loopback() {
            let next = "use 127.0.0.1 or [::1]; to reach it from another machine, forward the port (ssh -L)";
            return Err(Diagnosis::new(
                &codes::CONTROL_LISTEN,
                address,
                "it is not a loopback address",
                next,
            ));
        }
        let next = "choose a free port for `listen` under [control]";
        let about = |bound: std::io::Result<TcpListener>| bound.about(&codes::CONTROL_LISTEN, address, next);
        let listener = about(TcpListener::bind(address))?;
        let bound = listener.local_addr().and_then(|address| {
            listener.set_nonblocking(true)?;
            Ok(address)
        });
        let address = bound.about(&codes::CONTROL_LISTEN, address, next)?;
        Ok(Self { listener, address })
    }

    /// Returns the address with its port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the listener, which does not block.
    pub(crate) fn into_std(self) -> TcpListener {
        self.listener
    }
}
