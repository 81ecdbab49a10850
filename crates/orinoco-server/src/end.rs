//! End of the server.

use tokio::sync::watch;

/// End of the server, for which its parts wait.
#[derive(Clone)]
pub(crate) struct End(watch::Receiver<bool>);

impl End {
    /// Creates the end, and the sender that brings it: by `true`, or by its drop.
    pub(crate) fn new() -> (watch::Sender<bool>, Self) {
        let (sender, receiver) = watch::channel(false);
        (sender, Self(receiver))
    }

    /// Waits for the end.
    pub(crate) async fn wait(&mut self) {
        // An error says that the sender is gone, which is the end, too.
        let _ = self.0.wait_for(|ends| *ends).await;
    }
}
