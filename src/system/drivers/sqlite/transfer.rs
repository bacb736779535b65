//! Rows of any table, for copies.

use async_trait::async_trait;
use helmdeck_memory::Result;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Row as Found, ToSql, params_from_iter};

use super::Sqlite;
use crate::transfer::{RESULTS, Row, Table, TableRows, Type, Value};

#[async_trait]
impl TableRows for Sqlite {
    async fn rows(
        &self,
        table: &'static Table,
        after: Option<Row>,
        limit: usize,
    ) -> Result<Vec<Row>> {
        let found = self.0.read(move |db| {
            let names = columns(table, table.columns.len());
            let keys = columns(table, table.keys);
            let mut wheres = Vec::new();
            if table.name == RESULTS {
                wheres.push("result IS NOT NULL".to_owned());
            }
            if after.is_some() {
                wheres.push(format!("({keys}) > ({})", places(table.keys)));
            }
            let wheres = if wheres.is_empty() {
                String::new()
            } else {
                format!("WHERE {}", wheres.join(" AND "))
            };
            let sql = format!(
                "SELECT {names} FROM {} {wheres} ORDER BY {keys} LIMIT {limit}",
                table.sqlite
            );
            let mut all = db.prepare_cached(&sql)?;
            let rows = all.query_map(params_from_iter(after.into_iter().flatten()), |found| {
                read(table, found)
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        });
        Ok(found.await?.unwrap_or_default())
    }

    async fn put_rows(&self, table: &'static Table, rows: Vec<Row>) -> Result<()> {
        self.0
            .write(move |db| {
                let sql = if table.name == RESULTS {
                    "UPDATE jobs SET result = ?2 WHERE id = ?1".to_owned()
                } else {
                    let (names, places) = (columns(table, table.columns.len()), places(table.columns.len()));
                    let keys = columns(table, table.keys);
                    let others =
                        table.columns[table.keys..].iter().map(|(name, _)| format!("{name} = excluded.{name}"));
                    let others = others.collect::<Vec<_>>().join(", ");
                    format!(
                        "INSERT INTO {} ({names}) VALUES ({places}) ON CONFLICT ({keys}) DO UPDATE SET {others}",
                        table.sqlite
                    )
                };
                let mut put = db.prepare_cached(&sql)?;
                for row in rows {
                    put.execute(params_from_iter(row))?;
                }
                Ok(())
            })
            .await
    }
}

/// Returns the names of the first columns.
fn columns(table: &Table, count: usize) -> String {
    let name = |(name, _): &(&'static str, Type)| {
        if *name == "sealed" && table.name == RESULTS {
            "result"
        } else {
            *name
        }
    };
    table.columns[..count]
        .iter()
        .map(name)
        .collect::<Vec<_>>()
        .join(", ")
}

fn places(count: usize) -> String {
    (1..=count)
        .map(|number| format!("?{number}"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn read(table: &Table, found: &Found<'_>) -> rusqlite::Result<Row> {
    let value = |(index, (name, kind)): (usize, &(&str, Type))| {
        Ok(match (found.get_ref(index)?, kind) {
            // Keys of an earlier version have neither.
            (ValueRef::Null, _) if *name == "owner" => Value::Text(String::new()),
            (ValueRef::Null, _) if *name == "fence" => Value::Blob(vec![0; 16]),
            (ValueRef::Null, _) => Value::Null,
            (_, Type::Bool) => Value::Bool(found.get(index)?),
            (_, Type::Int) => Value::Int(found.get(index)?),
            (_, Type::Real) => Value::Real(found.get(index)?),
            // As PostgreSQL can hold it.
            (_, Type::Text) => {
                Value::Text(found.get::<_, String>(index)?.replace('\0', "\u{FFFD}"))
            }
            (_, Type::Blob) => Value::Blob(found.get(index)?),
        })
    };
    table.columns.iter().enumerate().map(value).collect()
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            Self::Bool(value) => ToSqlOutput::Borrowed(ValueRef::Integer(i64::from(*value))),
            Self::Int(value) => ToSqlOutput::Borrowed(ValueRef::Integer(*value)),
            Self::Real(value) => ToSqlOutput::Borrowed(ValueRef::Real(*value)),
            Self::Text(value) => ToSqlOutput::Borrowed(ValueRef::Text(value.as_bytes())),
            Self::Blob(value) => ToSqlOutput::Borrowed(ValueRef::Blob(value)),
        })
    }
}
