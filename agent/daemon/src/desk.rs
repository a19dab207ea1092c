//! Where the loop answers questions of other threads about what it knows.
//!
//! Only the loop may look into the ledger, so whoever wants to know asks here and waits; the loop
//! looks at the desk at each wake-up and never waits itself.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::fail::Order;
use crate::health::Health;
use crate::proc::PodUid;
use crate::sink::Line;
use crate::views::{AgentView, RoomsView, WorkersView};

/// Most questions that wait; a further one is turned away.
const WAITING_MAX: usize = 32;

/// What may be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// How the workers are.
    Workers(Whose),
    /// Open rooms, the oldest first, at most so many; of all workers or of one process.
    Rooms(usize, Option<u32>),
    /// What the agent is and does.
    Agent,
    /// That a room be failed.
    Fail(Order),
}

impl Ask {
    /// How long an answer may take: the loop wakes every 20 ms, and what becomes of a room that is to
    /// be failed shows within its validity and a while.
    const fn patience(&self) -> Duration {
        match self {
            Self::Fail(_) => Duration::from_secs(8),
            _ => Duration::from_secs(2),
        }
    }
}

/// Which workers are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// All.
    All,
    /// Those of one process, by its id on the host.
    Process(u32),
    /// Those of one pod of Kubernetes.
    Pod(PodUid),
}

/// What the loop says.
#[derive(Debug)]
pub enum Answer {
    /// To [`Ask::Workers`].
    Workers(WorkersView),
    /// To [`Ask::Rooms`].
    Rooms(RoomsView),
    /// To [`Ask::Agent`].
    Agent(Box<AgentView>),
    /// To [`Ask::Fail`].
    Fail(Box<Line>),
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Silence {
    /// Too many wait already.
    #[error("{WAITING_MAX} questions wait for the agent's loop already: ask again later")]
    Busy,
    /// The loop did not come to it.
    #[error("the agent's loop did not answer in time: /healthz says whether it runs")]
    Late,
    /// The agent is ending.
    #[error("the agent is ending")]
    Ended,
}

/// A question and where its answer goes.
#[derive(Debug)]
pub struct Question {
    /// What is asked.
    pub ask: Ask,
    reply: oneshot::Sender<Answer>,
}

impl Question {
    /// Answers. Whoever asked may have gone.
    pub fn answer(self, answer: Answer) {
        drop(self.reply.send(answer));
    }
}

/// The side of whoever asks.
#[derive(Clone, Debug)]
pub struct Asker {
    questions: mpsc::Sender<Question>,
    /// Whether the loop runs.
    pub health: Arc<Health>,
}

impl Asker {
    /// Asks and waits for the answer.
    pub async fn ask(&self, ask: Ask) -> Result<Answer, Silence> {
        let (reply, answer) = oneshot::channel();
        let patience = ask.patience();
        self.questions.try_send(Question { ask, reply }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Silence::Busy,
            mpsc::error::TrySendError::Closed(_) => Silence::Ended,
        })?;
        match tokio::time::timeout(patience, answer).await {
            Ok(answer) => answer.map_err(|_ended| Silence::Ended),
            Err(_) => Err(Silence::Late),
        }
    }
}

/// The loop's side.
#[derive(Debug)]
pub struct Desk {
    questions: mpsc::Receiver<Question>,
    /// The loop's heart.
    pub health: Arc<Health>,
}

impl Desk {
    /// A desk, and the side of whoever asks there.
    pub fn new(health: Health) -> (Self, Asker) {
        let (to, questions) = mpsc::channel(WAITING_MAX);
        let health = Arc::new(health);
        (Self { questions, health: Arc::clone(&health) }, Asker { questions: to, health })
    }

    /// The next question whose asker still waits.
    pub fn question(&mut self) -> Option<Question> {
        loop {
            let question = self.questions.try_recv().ok()?;
            if !question.reply.is_closed() {
                return Some(question);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use inflightd_core::Nanos;

    use super::*;

    fn desk() -> (Desk, Asker) {
        Desk::new(Health::new(Nanos::ZERO))
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().build().unwrap().block_on(future)
    }

    #[test]
    fn a_question_is_answered() {
        block_on(async {
            let (mut desk, asker) = desk();
            let ask = tokio::spawn(async move { asker.ask(Ask::Workers(Whose::Process(7))).await });
            tokio::task::yield_now().await;
            let question = desk.question().unwrap();
            assert_eq!(question.ask, Ask::Workers(Whose::Process(7)));
            question.answer(Answer::Workers(WorkersView::default()));
            assert!(matches!(ask.await.unwrap(), Ok(Answer::Workers(_))));
        });
    }

    #[test]
    fn nobody_waits_for_ever_and_who_has_gone_is_not_answered() {
        block_on(async {
            let (mut desk, asker) = desk();
            assert_eq!(asker.ask(Ask::Agent).await.unwrap_err(), Silence::Late);
            assert!(desk.question().is_none(), "the asker has gone");
            drop(desk);
            assert_eq!(asker.ask(Ask::Agent).await.unwrap_err(), Silence::Ended);
        });
    }

    #[test]
    fn too_many_are_turned_away() {
        block_on(async {
            let (_desk, asker) = desk();
            let waiting: Vec<_> = (0..WAITING_MAX)
                .map(|_| {
                    let asker = asker.clone();
                    tokio::spawn(async move { asker.ask(Ask::Agent).await })
                })
                .collect();
            tokio::task::yield_now().await;
            assert_eq!(asker.ask(Ask::Agent).await.unwrap_err(), Silence::Busy);
            drop(waiting);
        });
    }
}
