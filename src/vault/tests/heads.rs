//! Heads: rows of the vault that were put back from outside, and rows of the first format.

use serde_json::Value;

use super::*;

/// A vault that can be changed from outside: the names of its tables, and how SQL reaches them.
struct Outside {
    system: System,
    rows: &'static str,
    state: &'static str,
    sql: Box<dyn Fn(&str)>,
    _folder: Option<tempfile::TempDir>,
}

impl Outside {
    fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("helmdeck.db");
        let (at, system) = (path.clone(), System::at(path));
        let sql = move |sql: &str| {
            rusqlite::Connection::open(&at)
                .unwrap()
                .execute_batch(sql)
                .unwrap()
        };
        Self {
            system,
            rows: "vault_credentials",
            state: "vault_state",
            sql: Box::new(sql),
            _folder: Some(folder),
        }
    }

    fn postgres() -> Self {
        let server = helmdeck_testkit::Postgres::shared();
        let url = server.database();
        let system = System::connect(&url, &helmdeck_memory::Config::default()).unwrap();
        let sql = move |sql: &str| server.sql(&url, sql);
        Self {
            system,
            rows: "system_vault",
            state: "system_vault_state",
            sql: Box::new(sql),
            _folder: None,
        }
    }

    fn book(&self) -> Book {
        Book::new(self.system.clone(), ring("a", None), clock())
    }

    async fn vault(&self) -> Vault {
        Vault::open(self.system.clone(), ring("a", None), clock())
            .await
            .unwrap()
    }

    /// Keeps the row of a credential, or the state, as it is now.
    fn keep(&self, what: &str) {
        (self.sql)(&format!(
            "DROP TABLE IF EXISTS kept_{what}; CREATE TABLE kept_{what} AS SELECT * FROM {}",
            match what {
                "rows" => self.rows,
                _ => self.state,
            }
        ));
    }

    /// Puts rows back as they were kept, and makes servers read them.
    fn put_back(&self, what: &str, of: &str) {
        let table = if what == "rows" {
            self.rows
        } else {
            self.state
        };
        (self.sql)(&format!(
            "DELETE FROM {table} WHERE {of}; INSERT INTO {table} SELECT * FROM kept_{what} WHERE {of};
             UPDATE {} SET generation = generation + 100",
            self.state
        ));
    }
}

/// What an attacker that can write the database undoes, each seen by a running server, a new one
/// and the operator.
async fn rollback(outside: Outside) {
    let book = outside.book();
    book.set(
        "token",
        open_to("local/local", "*"),
        material(Kind::ApiKey, "first"),
    )
    .await
    .unwrap();
    book.set(
        "other",
        open_to("local/local", "*"),
        material(Kind::ApiKey, "other"),
    )
    .await
    .unwrap();
    let running = outside.vault().await;
    assert_eq!(reveal(&running, "token").unwrap(), "first");

    let revoke = || Change {
        revoke: vec!["local/local".parse().unwrap()],
        ..Change::default()
    };
    let steps: [(&str, &str); 3] = [
        ("rotated", "another row"),
        ("revoked", "another row"),
        ("removed", "put back"),
    ];
    for (step, reason) in steps {
        outside.keep("rows");
        match step {
            "rotated" => {
                book.rotate("token", material(Kind::ApiKey, "second"))
                    .await
                    .unwrap();
            }
            "revoked" => {
                book.regrant("token", revoke()).await.unwrap();
            }
            _ => book.remove("token").await.unwrap(),
        }
        outside.put_back("rows", "name = 'token'");
        running.refresh().await.unwrap();
        for vault in [&running, &outside.vault().await] {
            assert_eq!(
                reveal(vault, "token").unwrap_err().code(),
                Code::Forbidden,
                "{step}"
            );
            assert_eq!(
                reveal(vault, "other").unwrap(),
                "other",
                "{step}: its neighbour is there"
            );
        }
        let (count, wrong) = book.check().await.unwrap();
        assert_eq!((count, wrong.len()), (2, 1), "{step}");
        assert!(
            wrong[0].to_string().contains(reason),
            "{step}: {}",
            wrong[0]
        );
        let listed = book.list().await.unwrap();
        assert!(
            listed[1].about.as_ref().unwrap().is_err() && listed[0].about.as_ref().unwrap().is_ok()
        );
        // Nothing is made of the row that was put back, and a change of another does not make it
        // good.
        assert!(matches!(
            book.rotate("token", material(Kind::ApiKey, "x")).await,
            Err(VaultError::Unreadable { .. })
        ));
        assert!(matches!(
            book.regrant("token", revoke()).await,
            Err(VaultError::Unreadable { .. })
        ));
        book.rotate("other", material(Kind::ApiKey, "other"))
            .await
            .unwrap();
        assert_eq!(book.rekey().await.unwrap().unwrap().unreadable, ["token"]);
        assert_eq!(book.check().await.unwrap().1.len(), 1, "{step}");
        // Only a new secret ends it.
        book.set(
            "token",
            open_to("local/local", "*"),
            material(Kind::ApiKey, "again"),
        )
        .await
        .unwrap();
        assert!(book.check().await.unwrap().1.is_empty());
        running.refresh().await.unwrap();
        assert_eq!(reveal(&running, "token").unwrap(), "again", "{step}");
    }
}

/// What is done to the head itself.
async fn head(outside: Outside) {
    let book = outside.book();
    book.set(
        "token",
        open_to("local/local", "*"),
        material(Kind::ApiKey, "first"),
    )
    .await
    .unwrap();
    let running = outside.vault().await;
    let state = outside.state;
    for sql in [
        format!("UPDATE {state} SET head = NULL, generation = generation + 250"),
        format!(
            "UPDATE {state} SET head = sealed, generation = generation + 250 FROM {} WHERE name = 'token'",
            outside.rows
        ),
    ] {
        outside.keep("state");
        (outside.sql)(&sql);
        running.refresh().await.unwrap();
        for vault in [&running, &outside.vault().await] {
            assert_eq!(
                reveal(vault, "token").unwrap_err().code(),
                Code::Forbidden,
                "{sql}"
            );
        }
        assert_eq!(book.check().await.unwrap().1.len(), 1, "{sql}");
        outside.put_back("state", "one = 1");
        running.refresh().await.unwrap();
        assert_eq!(reveal(&running, "token").unwrap(), "first", "{sql}");
    }
    // The whole vault of before: a server that knows better refuses it, one that starts now cannot
    // tell.
    outside.keep("rows");
    outside.keep("state");
    book.rotate("token", material(Kind::ApiKey, "second"))
        .await
        .unwrap();
    running.refresh().await.unwrap();
    assert_eq!(reveal(&running, "token").unwrap(), "second");
    outside.put_back("rows", "name = 'token'");
    outside.put_back("state", "one = 1");
    running.refresh().await.unwrap();
    assert_eq!(
        reveal(&running, "token").unwrap_err().code(),
        Code::Forbidden
    );
    assert_eq!(reveal(&outside.vault().await, "token").unwrap(), "first");
    // A row that goes is told, not only a row that comes.
    (outside.sql)(&format!(
        "DELETE FROM {}; UPDATE {state} SET generation = generation + 1",
        outside.rows
    ));
    let (count, wrong) = book.check().await.unwrap();
    assert_eq!((count, wrong.len()), (0, 1));
    assert!(wrong[0].to_string().contains("missing"), "{}", wrong[0]);
}

#[tokio::test]
async fn sqlite_refuses_older_credentials() {
    rollback(Outside::sqlite()).await;
    head(Outside::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_refuses_older_credentials() {
    rollback(Outside::postgres()).await;
    head(Outside::postgres()).await;
}

/// `format1.json` was written by the last version that sealed in the first format, without a head.
#[tokio::test]
async fn credentials_of_the_first_format_open_and_are_converted() {
    let outside = Outside::sqlite();
    let written: Value = serde_json::from_str(include_str!("format1.json")).unwrap();
    let bytes = |digits: &str| -> Vec<u8> {
        (0..digits.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
            .collect()
    };
    let time = |of: &Value| helmdeck_core::Timestamp(of.as_i64().unwrap());
    let rows = written["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|of| VaultRow {
            name: of["name"].as_str().unwrap().to_owned(),
            version: of["version"].as_u64().unwrap(),
            key_id: of["key_id"].as_str().unwrap().to_owned(),
            sealed: bytes(of["sealed"].as_str().unwrap()),
            created_at: time(&of["created_at"]),
            updated_at: time(&of["updated_at"]),
        });
    let rows: Vec<VaultRow> = rows.collect();
    let key_id = written["key_id"].as_str().map(str::to_owned);
    let change = VaultChange {
        key_id,
        put: rows.clone(),
        ..VaultChange::default()
    };
    outside
        .system
        .change_vault(true, |_, _| (Some(change), ()))
        .await
        .unwrap();

    let book = outside.book();
    assert!(matches!(
        Book::new(outside.system.clone(), ring("b", None), clock())
            .list()
            .await,
        Err(VaultError::WrongKey { .. })
    ));
    assert_eq!(book.check().await.unwrap().1.len(), 0);
    assert_eq!(reveal(&outside.vault().await, "token").unwrap(), SECRET);
    assert_eq!(
        reveal(&outside.vault().await, "login").unwrap(),
        "pass word"
    );
    // The first change writes a head over all rows; the old row of another is then one of them.
    book.rotate("login", material(Kind::Login, "new"))
        .await
        .unwrap();
    assert_eq!(reveal(&outside.vault().await, "token").unwrap(), SECRET);
    let done = book.rekey().await.unwrap().unwrap();
    assert_eq!(
        (done.resealed, done.already, done.unreadable.len()),
        (1, 1, 0)
    );
    assert_eq!(reveal(&outside.vault().await, "token").unwrap(), SECRET);
    let (state, now) = outside.system.vault().await.unwrap();
    let current = ring("a", None).current_id().to_owned();
    assert!(now.iter().all(|row| row.key_id == current) && state.key_id == Some(current));
    // From then on rows of the first format are refused.
    let put = VaultChange {
        put: vec![rows[1].clone()],
        ..VaultChange::default()
    };
    outside
        .system
        .change_vault(false, |_, _| (Some(put), ()))
        .await
        .unwrap();
    assert_eq!(
        reveal(&outside.vault().await, "token").unwrap_err().code(),
        Code::Forbidden
    );
}
