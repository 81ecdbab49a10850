//! Connection whose client has to read.

#![expect(clippy::disallowed_methods, reason = "the time-out of a connection is I/O")]

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Connection that fails when its client has not read for a time and a write waits for it.
///
/// The kernel accepts bytes again only when a good part of its buffer is free (`unix_writable` and `sk_stream_write_space`
/// of Linux ask for a fourth or a third), so a client that reads single bytes counts as one that does not read.
pub(crate) struct StallBound<T> {
    io: T,
    stall_max: Duration,
    /// End of the wait of the present write.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<T> StallBound<T> {
    /// Creates a connection whose writes wait for `stall_max` at most.
    pub(crate) fn new(io: T, stall_max: Duration) -> Self {
        Self { io, stall_max, deadline: None }
    }

    /// Returns the outcome of a write, or a time-out if it has waited for too long.
    fn bound<R>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.deadline = None;
            return written;
        }
        let stall_max = self.stall_max;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(stall_max)));
        ready!(deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for StallBound<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for StallBound<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        self.bound(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.bound(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.bound(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.io).poll_shutdown(cx);
        self.bound(cx, shut)
    }
}
