//! Listeners of either kind.

use std::io;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Listener that accepts connections.
pub(crate) trait Accept: Send + 'static {
    /// Its connections.
    type Connection: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Accepts a connection, if one waits.
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Self::Connection>>;
}

impl Accept for UnixListener {
    type Connection = UnixStream;

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<UnixStream>> {
        let (connection, _) = ready!(self.poll_accept(cx))?;
        Poll::Ready(Ok(connection))
    }
}

impl Accept for TcpListener {
    type Connection = TcpStream;

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        let (connection, _) = ready!(self.poll_accept(cx))?;
        // An event is one small write, which shall not wait for more. It fails only for a connection that is gone.
        let _ = connection.set_nodelay(true);
        Poll::Ready(Ok(connection))
    }
}
