//! Empty on purpose: `ockam_core` uses `core2::io` only where there is no `std`.
