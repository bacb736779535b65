//! Statements over a pooled connection, the same for a direct session and for a pooler in
//! transaction mode.
//!
//! A direct session keeps its settings and named statements. Behind a pooler each transaction may
//! run on another server connection: it brings its settings along, and its statements have no name.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use deadpool_postgres::{Object, Pool};
use futures_util::future::join3;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Row, Statement};

use super::connect::{self, Asking, Dialer, PATIENCE, READS, within};
use super::error::{Failure, Outcome, Remedy, unavailable};
use crate::error::Result;

/// A value for a parameter, with its type. The server is never asked for the types of parameters.
pub(super) trait Param: ToSql + Sync {
    /// Returns the type that the statement gets.
    fn sql_type(&self) -> Type;
}

/// A value that may be in a list.
pub(super) trait Element: ToSql + Sync {
    /// The type of a list of it.
    const LIST: Type;
}

macro_rules! params {
    ($($rust:ty: $one:ident $list:ident;)*) => {
        $(
            impl Param for $rust {
                fn sql_type(&self) -> Type {
                    Type::$one
                }
            }
            impl Param for Option<$rust> {
                fn sql_type(&self) -> Type {
                    Type::$one
                }
            }
            impl Element for $rust {
                const LIST: Type = Type::$list;
            }
        )*
    };
}

params! {
    i32: INT4 INT4_ARRAY;
    i64: INT8 INT8_ARRAY;
    &str: TEXT TEXT_ARRAY;
    String: TEXT TEXT_ARRAY;
    &[u8]: BYTEA BYTEA_ARRAY;
    Vec<u8>: BYTEA BYTEA_ARRAY;
}

impl Element for Option<i64> {
    const LIST: Type = Type::INT8_ARRAY;
}

impl<T: Element> Param for Vec<T> {
    fn sql_type(&self) -> Type {
        T::LIST
    }
}

impl<T: Element> Param for &[T] {
    fn sql_type(&self) -> Type {
        T::LIST
    }
}

/// Connections to one database.
#[derive(Debug, Clone)]
pub(super) struct Database {
    pool: Pool,
    dialer: Dialer,
}

impl Database {
    /// Makes a pool of at most `size` connections; they open when needed.
    ///
    /// # Errors
    /// `Unavailable` if there is no runtime.
    pub(super) fn new(dialer: Dialer, size: usize) -> Result<Self> {
        Ok(Self {
            pool: dialer.pool(size)?,
            dialer,
        })
    }

    pub(super) const fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    /// Takes a connection out of the pool, as it is.
    pub(super) async fn object(&self) -> Outcome<Object> {
        connect::take(&self.pool).await
    }

    /// Takes a connection out of the pool.
    pub(super) async fn take(&self) -> Outcome<Db> {
        let connection = self.object().await?;
        // Known only now: the first connection finds it out.
        let settings = self.dialer.is_pooled().then(|| self.dialer.beginning());
        Ok(Db {
            connection,
            settings,
            has_begun: AtomicBool::new(false),
        })
    }

    /// Reads over a connection, and retries on another one if it is lost.
    ///
    /// Dropping the future is safe: the pending answer of the server is discarded.
    pub(super) async fn read<T>(&self, ask: impl for<'c> Fn(&'c Db) -> Asking<'c, T>) -> Result<T> {
        for _ in 1..READS {
            match self.read_once(&ask).await {
                Err(Failure {
                    remedy: Remedy::Again | Remedy::Reconnect,
                    ..
                }) => {}
                outcome => return outcome.map_err(|failure| failure.error),
            }
        }
        self.read_once(&ask).await.map_err(|failure| failure.error)
    }

    async fn read_once<T>(&self, ask: &impl for<'c> Fn(&'c Db) -> Asking<'c, T>) -> Outcome<T> {
        let db = self.take().await?;
        let outcome = within(ask(&db)).await;
        if matches!(&outcome, Err(failure) if failure.is_of_connection()) {
            db.discard();
        }
        outcome
    }

    /// Closes the pool; a connection in use closes when it is given back.
    pub(super) fn close(&self) {
        self.pool.close();
    }
}

/// A connection of the pool.
#[derive(Debug)]
pub(super) struct Db {
    connection: Object,
    /// The beginning of a transaction behind a pooler; `None` on a direct session.
    settings: Option<Arc<str>>,
    has_begun: AtomicBool,
}

/// A statement with its parameters, ready to be sent.
pub(super) struct Ready<'p> {
    form: Form,
    params: Vec<&'p dyn Param>,
}

enum Form {
    Named(Statement),
    Unnamed(&'static str),
}

impl<'p> Ready<'p> {
    fn values(&self) -> Vec<&'p (dyn ToSql + Sync)> {
        self.params
            .iter()
            .map(|param| *param as &(dyn ToSql + Sync))
            .collect()
    }

    fn typed(&self) -> Vec<(&'p (dyn ToSql + Sync), Type)> {
        self.params
            .iter()
            .map(|param| (*param as &(dyn ToSql + Sync), param.sql_type()))
            .collect()
    }
}

impl Db {
    /// Prepares a statement: by name on a direct session, once per connection.
    pub(super) async fn ready<'p>(
        &self,
        sql: &'static str,
        params: &[&'p dyn Param],
    ) -> Outcome<Ready<'p>> {
        let form = if self.settings.is_some() {
            Form::Unnamed(sql)
        } else {
            let types: Vec<Type> = params.iter().map(|param| param.sql_type()).collect();
            Form::Named(self.connection.prepare_typed_cached(sql, &types).await?)
        };
        Ok(Ready {
            form,
            params: params.to_vec(),
        })
    }

    /// Sends a statement when first polled, and returns its rows.
    pub(super) async fn rows(&self, ready: &Ready<'_>) -> Result<Vec<Row>, tokio_postgres::Error> {
        match &ready.form {
            Form::Named(statement) => self.connection.query(statement, &ready.values()).await,
            Form::Unnamed(sql) => self.connection.query_typed(sql, &ready.typed()).await,
        }
    }

    /// Sends a statement when first polled, and returns how many rows it changed.
    pub(super) async fn run(&self, ready: &Ready<'_>) -> Result<u64, tokio_postgres::Error> {
        match &ready.form {
            Form::Named(statement) => self.connection.execute(statement, &ready.values()).await,
            Form::Unnamed(sql) => self.connection.execute_typed(sql, &ready.typed()).await,
        }
    }

    /// Returns the rows of a statement.
    pub(super) async fn query(
        &self,
        sql: &'static str,
        params: &[&dyn Param],
    ) -> Outcome<Vec<Row>> {
        let ready = self.ready(sql, params).await?;
        Ok(self.alone(self.rows(&ready)).await?)
    }

    /// Returns the first row of a statement, if there is one.
    pub(super) async fn query_opt(
        &self,
        sql: &'static str,
        params: &[&dyn Param],
    ) -> Outcome<Option<Row>> {
        Ok(self.query(sql, params).await?.into_iter().next())
    }

    /// Returns the first row of a statement that always has one.
    pub(super) async fn query_one(&self, sql: &'static str, params: &[&dyn Param]) -> Outcome<Row> {
        let row = self.query_opt(sql, params).await?;
        row.ok_or_else(|| {
            unavailable("the PostgreSQL server answered without a row".to_owned()).into()
        })
    }

    /// Runs a statement, and returns how many rows it changed.
    pub(super) async fn execute(&self, sql: &'static str, params: &[&dyn Param]) -> Outcome<u64> {
        let ready = self.ready(sql, params).await?;
        Ok(self.alone(self.run(&ready)).await?)
    }

    /// Sends a statement; behind a pooler in a transaction of its own, in the same round trip,
    /// unless one has begun.
    pub(super) async fn alone<T>(
        &self,
        sent: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, tokio_postgres::Error> {
        let Some(settings) = self.settings.as_deref().filter(|_| !self.has_begun()) else {
            return sent.await;
        };
        // All three are sent at once, so a caller that stops waiting leaves no transaction open.
        let begin = self.connection.batch_execute(settings);
        let (began, answer, ended) =
            join3(begin, sent, self.connection.batch_execute("COMMIT")).await;
        began?;
        let answer = answer?;
        ended?;
        Ok(answer)
    }

    fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Acquire)
    }

    /// Begins a transaction; sends it when first polled.
    pub(super) async fn begin(&self) -> Result<(), tokio_postgres::Error> {
        self.has_begun.store(true, Ordering::Release);
        self.connection
            .batch_execute(self.settings.as_deref().unwrap_or("BEGIN"))
            .await
    }

    /// Commits the transaction; sends it when first polled.
    pub(super) async fn commit(&self) -> Result<(), tokio_postgres::Error> {
        self.has_begun.store(false, Ordering::Release);
        self.connection.batch_execute("COMMIT").await
    }

    /// Rolls the transaction back, if there is one.
    pub(super) async fn rollback(&self) -> Result<(), tokio_postgres::Error> {
        self.has_begun.store(false, Ordering::Release);
        self.connection.batch_execute("ROLLBACK").await
    }

    /// Runs SQL without parameters, within a transaction.
    pub(super) async fn batch(&self, sql: &str) -> Result<(), tokio_postgres::Error> {
        self.connection.batch_execute(sql).await
    }

    /// Closes the connection instead of giving it back.
    pub(super) fn discard(self) {
        connect::discard(self.connection);
    }

    /// Ends the transaction of what failed, and gives the connection back if it is still good.
    pub(super) async fn give_back<T>(self, outcome: Outcome<T>) -> Outcome<T> {
        self.give_back_until(Instant::now() + PATIENCE, outcome)
            .await
    }

    /// As [`Db::give_back`], with a deadline for the end of the transaction.
    pub(super) async fn give_back_until<T>(self, end: Instant, outcome: Outcome<T>) -> Outcome<T> {
        if let Err(failure) = &outcome
            && (failure.is_of_connection()
                || !matches!(timeout_at(end, self.rollback()).await, Ok(Ok(()))))
        {
            self.discard();
        }
        outcome
    }
}
