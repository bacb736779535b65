//! Metrics of Prometheus, each declared once: field, name, unit and help.

/// Declares a struct of metrics, with a function `register` that makes and registers them in this
/// order.
///
/// The crate that uses it depends on `prometheus-client`. A metric has the form `field: Type =
/// "name" "help";`, with a unit after the name and a constructor after the help if it needs them:
/// `waited: Histogram = "job_wait" [Seconds] "How long jobs waited", Histogram::new(buckets());`.
#[macro_export]
macro_rules! metrics {
    (@new) => { Default::default() };
    (@new $new:expr) => { $new };
    (@add $registry:ident $name:literal $help:literal $metric:ident) => {
        $registry.register($name, $help, $metric.clone())
    };
    (@add $registry:ident $name:literal $help:literal $metric:ident $unit:ident) => {
        $registry.register_with_unit($name, $help, prometheus_client::registry::Unit::$unit, $metric.clone())
    };
    ($(#[$meta:meta])* $vis:vis struct $type:ident {
        $($(#[$note:meta])* $seen:vis $metric:ident: $kind:ty = $name:literal $([$unit:ident])? $help:literal
            $(, $new:expr)?;)+
    }) => {
        $(#[$meta])*
        $vis struct $type { $($(#[$note])* $seen $metric: $kind),+ }

        impl $type {
            /// Makes the metrics and registers them.
            $vis fn register(registry: &mut prometheus_client::registry::Registry) -> Self {
                $(
                    let $metric: $kind = $crate::metrics!(@new $($new)?);
                    $crate::metrics!(@add registry $name $help $metric $($unit)?);
                )+
                Self { $($metric),+ }
            }
        }
    };
}
