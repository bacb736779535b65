//! Credentials, sealed with their own key, with grants and a use log.
