//! Ends of calls that the database has not taken: each is in the journal, and written until the
//! database has it.

use std::time::Duration;

use helmdeck_core::Timestamp;
use helmdeck_memory::Result;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::idempotency::{Fence, KeptEnd, KeyEnd};
use crate::jobs::{EndedJob, JobRow};
use crate::journal::JournalEntry;
use crate::system::System;

/// How often an end is written again that the database did not take.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// End of a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CallEnd {
    /// Of one with an idempotency key.
    Key(KeyEnd),
    /// Of one that ran as a job.
    Job(Box<EndedJob>),
}

/// An entry of the journal: a line of JSON, then the bytes of the answer if there is one.
#[derive(Serialize, Deserialize)]
struct EntryHead<T> {
    #[serde(flatten)]
    end: T,
    answered: bool,
}

#[derive(Serialize, Deserialize)]
struct KeyHead {
    scope: String,
    key: String,
    fence: [u8; 16],
    /// `None` = the key is free again.
    expires_at: Option<i64>,
}

impl System {
    /// Goes on with the ends that the journal says the database does not have. Call it once, at the
    /// start of a server.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`: of the journal.
    pub async fn resume_ends(&self) -> Result<()> {
        let Some(journal) = self.journal() else {
            return Ok(());
        };
        for kind in [CallEnd::KEY, CallEnd::JOB] {
            for JournalEntry { id, entry } in journal.entries(kind).await? {
                match entry
                    .as_deref()
                    .and_then(|entry| CallEnd::read(kind, entry))
                {
                    Some(end) => self.end_in_background(end, Some(id)),
                    None => {
                        tracing::warn!(
                            kind,
                            "the end of a call in the journal does not open; it is dropped"
                        );
                        journal.remove(id).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes the ends of jobs that the journal has: one that ended is not lost.
    ///
    /// # Errors
    /// `Unavailable`; `Corrupt`, of the journal.
    pub(crate) async fn write_job_ends(&self) -> Result<()> {
        let Some(journal) = self.journal().filter(|journal| journal.exists()) else {
            return Ok(());
        };
        for JournalEntry { entry, .. } in journal.entries(CallEnd::JOB).await? {
            let Some(end) = entry.and_then(|entry| CallEnd::read(CallEnd::JOB, &entry)) else {
                continue;
            };
            match self.try_end(&end).await {
                Err(error) if error.is_temporary() => return Err(error),
                // What cannot be written at all must not keep others from being ended.
                Err(error) => tracing::debug!(%error, "the end of a job cannot be written"),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Writes an end to the journal, and then to the database as soon as that can be reached.
    pub(crate) async fn end_later(&self, end: CallEnd) {
        let entry = match self.journal() {
            Some(journal) => journal.add(end.kind(), &end.write()).await.map(Some),
            None => Ok(None),
        };
        let entry = entry.unwrap_or_else(|error| {
            tracing::error!(%error, "the end of a call is not in the journal either: it is lost if this process ends before \
                                     the database is back");
            None
        });
        self.end_in_background(end, entry);
    }

    fn end_in_background(&self, end: CallEnd, entry: Option<i64>) {
        let system = self.clone();
        tokio::spawn(async move {
            while let Err(error) = system.try_end(&end).await {
                if !error.is_temporary() {
                    tracing::warn!(%error, kind = end.kind(), "the end of a call could not be written");
                    break;
                }
                tokio::time::sleep(AGAIN_AFTER).await;
            }
            if let (Some(journal), Some(entry)) = (system.journal(), entry)
                && let Err(error) = journal.remove(entry).await
            {
                // It is written once more after the next start.
                tracing::debug!(%error, "the end of a call could not be removed from the journal");
            }
        });
    }

    /// Writes an end to the database. One that is no longer its run's to write changes nothing.
    pub(crate) async fn try_end(&self, end: &CallEnd) -> Result<()> {
        match end {
            CallEnd::Key(KeyEnd {
                scope,
                key,
                fence,
                ended: Some(kept),
            }) => self
                .finish(scope, key, *fence, kept.answer.clone(), kept.expires_at)
                .await
                .map(drop),
            CallEnd::Key(KeyEnd {
                scope,
                key,
                fence,
                ended: None,
            }) => self.abandon(scope, key, *fence).await,
            CallEnd::Job(end) => self.driver().end_job((**end).clone()).await,
        }
    }
}

impl CallEnd {
    const KEY: &str = "key end";
    const JOB: &str = "job end";

    fn kind(&self) -> &'static str {
        match self {
            Self::Key(_) => Self::KEY,
            Self::Job(_) => Self::JOB,
        }
    }

    fn write(&self) -> Vec<u8> {
        match self {
            Self::Key(KeyEnd {
                scope,
                key,
                fence,
                ended,
            }) => {
                let expires_at = ended.as_ref().map(|kept| kept.expires_at.micros());
                let answer = ended.as_ref().and_then(|kept| kept.answer.as_deref());
                join(
                    KeyHead {
                        scope: scope.clone(),
                        key: key.clone(),
                        fence: fence.0,
                        expires_at,
                    },
                    answer,
                )
            }
            Self::Job(end) => {
                let EndedJob { row, sealed } = &**end;
                join(row.clone(), sealed.as_deref())
            }
        }
    }

    fn read(kind: &str, entry: &[u8]) -> Option<Self> {
        if kind == Self::KEY {
            let (
                KeyHead {
                    scope,
                    key,
                    fence,
                    expires_at,
                },
                answer,
            ) = split(entry)?;
            let ended = expires_at.map(|expires_at| KeptEnd {
                answer,
                expires_at: Timestamp(expires_at),
            });
            Some(Self::Key(KeyEnd {
                scope,
                key,
                fence: Fence(fence),
                ended,
            }))
        } else {
            let (row, sealed) = split::<JobRow>(entry)?;
            Some(Self::Job(Box::new(EndedJob { row, sealed })))
        }
    }
}

fn join(end: impl Serialize, answer: Option<&[u8]>) -> Vec<u8> {
    // Plain data; writing it to memory cannot fail.
    let head = serde_json::to_vec(&EntryHead {
        end,
        answered: answer.is_some(),
    })
    .unwrap_or_default();
    [&head[..], b"\n", answer.unwrap_or_default()].concat()
}

fn split<T: DeserializeOwned>(entry: &[u8]) -> Option<(T, Option<Vec<u8>>)> {
    let line = entry.iter().position(|byte| *byte == b'\n')?;
    let head: EntryHead<T> = serde_json::from_slice(&entry[..line]).ok()?;
    Some((head.end, head.answered.then(|| entry[line + 1..].to_vec())))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use helmdeck_testkit::{keyring, until};

    use super::*;
    use crate::conformance::NOW;
    use crate::conformance::jobs::{add, ended, find, row};
    use crate::idempotency::{Begun, KeyRequest};
    use crate::journal::Journal;

    fn system(folder: &Path) -> System {
        let journal = Journal::at(
            folder.join("journal.db"),
            Duration::from_secs(10),
            Some(keyring()),
        );
        System::at(folder.join("system").join("helmdeck.db")).with_journal(journal)
    }

    async fn begin(system: &System, key: &str) -> Begun {
        let asked = KeyRequest {
            scope: "s",
            key,
            digest: b"d",
            keep: Duration::from_secs(60),
            repeatable: false,
        };
        system
            .begin(asked, &system.replica().await.unwrap(), NOW)
            .await
            .unwrap()
    }

    fn end(key: &str, begun: &Begun, ended: Option<KeptEnd>) -> KeyEnd {
        let Begun::New(fence) = begun else {
            panic!("{begun:?}")
        };
        KeyEnd {
            scope: "s".into(),
            key: key.into(),
            fence: *fence,
            ended,
        }
    }

    async fn entries(system: &System) -> usize {
        let journal = system.journal().unwrap();
        journal.entries(CallEnd::KEY).await.unwrap().len()
            + journal.entries(CallEnd::JOB).await.unwrap().len()
    }

    /// A database that goes away and comes back.
    struct Place(PathBuf);

    impl Place {
        fn away(&self) {
            std::fs::rename(&self.0, self.0.with_extension("aside")).unwrap();
            std::fs::write(&self.0, "").unwrap();
        }

        fn back(&self) {
            std::fs::remove_file(&self.0).unwrap();
            std::fs::rename(self.0.with_extension("aside"), &self.0).unwrap();
        }
    }

    /// Does something in a process that ends before the database is back: its runtime stops with
    /// what it tried.
    fn in_another_process<F: Future>(
        work: impl FnOnce(System) -> F + Send + 'static,
        system: &System,
    ) {
        let system = system.clone();
        let process = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(work(system));
        });
        process.join().unwrap();
    }

    #[tokio::test]
    async fn ends_are_read_as_written() {
        let folder = tempfile::tempdir().unwrap();
        let replica = system(folder.path()).replica().await.unwrap();
        let kept = |answer: Option<&[u8]>| {
            Some(KeptEnd {
                answer: answer.map(<[u8]>::to_vec),
                expires_at: NOW,
            })
        };
        for ended in [None, kept(None), kept(Some(b"")), kept(Some(b"a\nb\n\0"))] {
            let end = CallEnd::Key(KeyEnd {
                scope: "s/\n".into(),
                key: "k".into(),
                fence: Fence([7; 16]),
                ended,
            });
            assert_eq!(CallEnd::read(CallEnd::KEY, &end.write()), Some(end));
        }
        for sealed in [None, Some(b"a\n\0".to_vec())] {
            let row = JobRow {
                percent: Some(0.5),
                error: Some("{\"a\":\n1}".into()),
                ..ended(&row(&replica, "a", 1))
            };
            let end = CallEnd::Job(Box::new(EndedJob { row, sealed }));
            assert_eq!(CallEnd::read(CallEnd::JOB, &end.write()), Some(end));
        }
        assert_eq!(CallEnd::read(CallEnd::KEY, b"no line"), None);
    }

    #[tokio::test]
    async fn end_is_written_when_the_database_is_back_and_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place(folder.path().join("system"));
        let one = system(folder.path());
        let (kept, freed) = (begin(&one, "kept").await, begin(&one, "freed").await);
        let answer = KeptEnd {
            answer: Some(b"sealed".to_vec()),
            expires_at: NOW.saturating_add(Duration::from_secs(60)),
        };
        place.away();
        one.end_key(end("kept", &kept, Some(answer.clone()))).await;
        assert_eq!(entries(&one).await, 1, "before the answer leaves");
        place.back();
        until("the end", async || entries(&one).await == 0).await;
        let done = Begun::Done {
            digest: b"d".into(),
            answer: Some(b"sealed".into()),
        };
        assert_eq!(begin(&one, "kept").await, done);

        place.away();
        let freed = end("freed", &freed, None);
        in_another_process(|system| async move { system.end_key(freed).await }, &one);
        place.back();
        assert_eq!(entries(&one).await, 1);
        let two = system(folder.path());
        two.resume_ends().await.unwrap();
        until("the end", async || entries(&two).await == 0).await;
        assert!(matches!(begin(&two, "freed").await, Begun::New(_)));
    }

    #[tokio::test]
    async fn end_of_a_job_outlives_its_process() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place(folder.path().join("system"));
        let one = system(folder.path());
        let row = add(&one, &one.replica().await.unwrap(), "a", 1).await;
        let end = EndedJob {
            row: ended(&row),
            sealed: Some(b"sealed".to_vec()),
        };
        place.away();
        in_another_process(
            |system| async move { system.end_job_later(end).await },
            &one,
        );
        place.back();
        assert_eq!(entries(&one).await, 1);
        let two = system(folder.path());
        two.resume_ends().await.unwrap();
        until("the end", async || entries(&two).await == 0).await;
        assert_eq!(find(&two, &row).await, Some(ended(&row)));
        assert_eq!(
            two.job_result(&row.id).await.unwrap().as_deref(),
            Some(&b"sealed"[..])
        );
    }
}
