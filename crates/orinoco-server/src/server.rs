//! Server with its threads.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use orinoco_core::{Clock, Diagnosis, WithSubject, codes};
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::answers::Answers;
use crate::connections::Connections;
use crate::counters::{Counters, Way};
use crate::end::End;
use crate::event_log::EventLog;
use crate::gate::Gate;
use crate::limits::Limits;
use crate::loopback::LoopbackListener;
use crate::monitored::Monitored;
use crate::routes::{Service, router};
use crate::socket::{LocalSocket, SocketFile};

/// Maximum number of threads that ask the board: one for each of its status, metrics, events, dump, list of models and data of models, so
/// that one that hangs delays none of the others.
const ASKING_THREADS_MAX: usize = 6;
/// Next step where the system refuses a thread.
const NEXT_THREAD: &str = "raise the limits on threads and open files (ulimit -u, ulimit -n)";

/// Listeners of a server.
#[derive(Debug, Default)]
pub struct Listeners {
    /// The Unix socket.
    pub socket: Option<LocalSocket>,
    /// The TCP listener.
    pub tcp: Option<LoopbackListener>,
}

/// Running server. It ends, with its socket, when it is dropped.
pub struct Server {
    answers: Arc<Answers>,
    /// Says that the board has new events.
    wake: Arc<Notify>,
    end: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server for a board that is starting: it answers that it starts, until [`Server::attach`] gives it the board.
    /// `clock` gives the age of shared answers; waits of clients are measured by tokio.
    ///
    /// # Errors
    ///
    /// [`codes::CONTROL_LISTEN`], if the system refuses its threads or the use of its sockets.
    pub fn start(listeners: Listeners, limits: Limits, clock: Arc<dyn Clock>) -> Result<Self, Diagnosis> {
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .thread_name("server-ask")
            .max_blocking_threads(ASKING_THREADS_MAX)
            .build()
            .about(&codes::CONTROL_LISTEN, "control server", NEXT_THREAD)?;
        let (end, ends) = End::new();
        let counters = Arc::new(Counters::default());
        let answers = Arc::new(Answers::new(Arc::clone(&counters), clock, limits.clone()));
        let wake = Arc::new(Notify::new());
        let events = Arc::new(EventLog::new(limits.event_streams_max));
        let service = Service { answers: Arc::clone(&answers), events, counters, limits, end: ends.clone() };
        let (tasks, file) = tasks(listeners, &service, &runtime)?;
        let (reader, woken) = (service, Arc::clone(&wake));
        let run = move || {
            runtime.spawn(async move { reader.events.read_from(&reader.answers, &woken).await });
            runtime.block_on(run(tasks, ends, file));
            // A question that the board never answers must not hold up the end.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("server".to_owned()).spawn(run);
        let thread = thread.about(&codes::CONTROL_LISTEN, "control server", NEXT_THREAD)?;
        Ok(Self { answers, wake, end, thread: Some(thread) })
    }

    /// Gives the server the board, when it runs.
    ///
    /// # Panics
    ///
    /// If the server has a board.
    pub fn attach(&self, monitored: Arc<dyn Monitored>) {
        self.answers.attach(Arc::clone(&monitored));
        let wake = Arc::clone(&self.wake);
        monitored.on_event(Box::new(move || wake.notify_one()));
        // Events that came before.
        self.wake.notify_one();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end.send_replace(true);
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
            // A panic of ours is not lost, but a second one would abort the program.
            if !thread::panicking() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// Returns the task of each listener, and the file of the Unix socket.
fn tasks(
    listeners: Listeners,
    service: &Service,
    runtime: &Runtime,
) -> Result<(JoinSet<()>, Option<SocketFile>), Diagnosis> {
    let _entered = runtime.enter();
    let mut tasks = JoinSet::new();
    let mut file = None;
    let connections = |way, gate| Connections {
        router: router(service.clone(), gate),
        way,
        counters: Arc::clone(&service.counters),
        limits: service.limits.clone(),
        end: service.end.clone(),
    };
    if let Some(socket) = listeners.socket {
        let subject = socket.path().display().to_string();
        let (listener, created) = socket.into_parts();
        let listener = UnixListener::from_std(listener);
        let listener = listener.about(&codes::CONTROL_LISTEN, subject, NEXT_THREAD)?;
        let gate = Gate::new(Arc::clone(&service.counters), None);
        tasks.spawn(connections(Way::Socket, gate).serve(listener));
        file = Some(created);
    }
    if let Some(tcp) = listeners.tcp {
        let address = tcp.address();
        let listener = TcpListener::from_std(tcp.into_std());
        let listener = listener.about(&codes::CONTROL_LISTEN, address, NEXT_THREAD)?;
        let gate = Gate::new(Arc::clone(&service.counters), Some(address));
        tasks.spawn(connections(Way::Tcp, gate).serve(listener));
    }
    Ok((tasks, file))
}

/// Serves until the server ends.
async fn run(mut tasks: JoinSet<()>, mut end: End, file: Option<SocketFile>) {
    end.wait().await;
    // New clients find no socket, instead of one that does not answer.
    drop(file);
    while tasks.join_next().await.is_some() {}
}
