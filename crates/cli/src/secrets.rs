//! The option of a worker that says where the secrets are that its steps may name.

use clap::Args;
use tenure_sdk::secrets::{SecretSource, SecretSources};

/// Where secrets are.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct SecretArgs {
    /// Where the secrets are that steps may name: env:PREFIX (variables TENURE_SECRET_…), dir:PATH (a file for each)
    /// or command:PATH (a program that is given the name); repeat it, or separate places by commas
    #[arg(long = "secrets", value_name = "PLACE", env = "TENURE_SECRETS", value_delimiter = ',')]
    places: Vec<SecretSource>,
}

impl SecretArgs {
    /// The places, in the order in which they are searched.
    pub(crate) fn sources(&self) -> SecretSources {
        SecretSources::of(self.places.iter().cloned())
    }
}
