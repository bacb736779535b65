//! Rows of any table, for copies.

use async_trait::async_trait;
use bytes::BytesMut;
use helmdeck_memory::Result;
use helmdeck_memory::drivers::postgres::session::Outcome;
use tokio_postgres::types::{IsNull, ToSql, Type as SqlType, to_sql_checked};

use super::{Postgres, READ, WRITE, on_server, text};
use crate::transfer::{Row, Table, TableRows, Type, Value};

#[async_trait]
impl TableRows for Postgres {
    async fn rows(
        &self,
        table: &'static Table,
        after: Option<Row>,
        limit: usize,
    ) -> Result<Vec<Row>> {
        let (names, keys) = (
            columns(table, table.columns.len()),
            columns(table, table.keys),
        );
        let from = after.as_ref().map_or_else(String::new, |_| {
            format!("WHERE ({keys}) > ({})", places(table.keys))
        });
        let sql = format!(
            "SELECT {names} FROM {} {from} ORDER BY {keys} LIMIT {limit}",
            table.postgres
        );
        let after = after.unwrap_or_default();
        let found = on_server!(self, READ, |db| {
            db.query_typed(&sql, &params(table, &after))
                .await?
                .iter()
                .map(|row| read(table, row))
                .collect()
        })?;
        Ok(found.unwrap_or_default())
    }

    async fn put_rows(&self, table: &'static Table, rows: Vec<Row>) -> Result<()> {
        let (names, keys) = (
            columns(table, table.columns.len()),
            columns(table, table.keys),
        );
        let others = table.columns[table.keys..]
            .iter()
            .map(|(name, _)| format!("{name} = excluded.{name}"));
        let sql = format!(
            "INSERT INTO {} ({names}) VALUES ({}) ON CONFLICT ({keys}) DO UPDATE SET {}",
            table.postgres,
            places(table.columns.len()),
            others.collect::<Vec<_>>().join(", ")
        );
        on_server!(self, WRITE, |db| {
            let transaction = db.transaction().await?;
            for row in &rows {
                transaction.execute_typed(&sql, &params(table, row)).await?;
            }
            Ok(transaction.commit().await?)
        })?;
        Ok(())
    }
}

/// Returns the names of the first columns.
fn columns(table: &Table, count: usize) -> String {
    table.columns[..count]
        .iter()
        .map(|(name, _)| *name)
        .collect::<Vec<_>>()
        .join(", ")
}

fn places(count: usize) -> String {
    (1..=count)
        .map(|number| format!("${number}"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn params<'a>(table: &Table, row: &'a [Value]) -> Vec<(&'a (dyn ToSql + Sync), SqlType)> {
    let types = table.columns.iter().map(|(name, kind)| match kind {
        Type::Int if *name == "one" => SqlType::INT4,
        Type::Int => SqlType::INT8,
        Type::Bool => SqlType::BOOL,
        Type::Real => SqlType::FLOAT8,
        Type::Text => SqlType::TEXT,
        Type::Blob => SqlType::BYTEA,
    });
    row.iter()
        .map(|value| value as &(dyn ToSql + Sync))
        .zip(types)
        .collect()
}

fn read(table: &Table, row: &tokio_postgres::Row) -> Outcome<Row> {
    let value = |(index, (name, kind)): (usize, &(&str, Type))| {
        let found = match kind {
            Type::Bool => row.try_get::<_, Option<bool>>(index)?.map(Value::Bool),
            Type::Int if *name == "one" => row
                .try_get::<_, Option<i32>>(index)?
                .map(|one| Value::Int(one.into())),
            Type::Int => row.try_get::<_, Option<i64>>(index)?.map(Value::Int),
            Type::Real => row.try_get::<_, Option<f64>>(index)?.map(Value::Real),
            Type::Text => row.try_get::<_, Option<String>>(index)?.map(Value::Text),
            Type::Blob => row.try_get::<_, Option<Vec<u8>>>(index)?.map(Value::Blob),
        };
        Ok(found.unwrap_or(Value::Null))
    };
    table.columns.iter().enumerate().map(value).collect()
}

impl ToSql for Value {
    fn to_sql(
        &self,
        of: &SqlType,
        out: &mut BytesMut,
    ) -> std::result::Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Bool(value) => value.to_sql(of, out),
            Self::Int(value) if *of == SqlType::INT4 => i32::try_from(*value)?.to_sql(of, out),
            Self::Int(value) => value.to_sql(of, out),
            Self::Real(value) => value.to_sql(of, out),
            Self::Text(value) => (&*text(value)).to_sql(of, out),
            Self::Blob(value) => value.to_sql(of, out),
        }
    }

    fn accepts(of: &SqlType) -> bool {
        [
            SqlType::BOOL,
            SqlType::INT4,
            SqlType::INT8,
            SqlType::FLOAT8,
            SqlType::TEXT,
            SqlType::BYTEA,
        ]
        .contains(of)
    }

    to_sql_checked!();
}
