//! A small server on the Rust SDK: it takes `initialize` as its first message, and ends over any other.

use rmcp::{
    handler::server::{router::tool::ToolRouter, ServerHandler},
    model::{ServerCapabilities, ServerInfo},
    tool, tool_handler, tool_router,
    transport::stdio,
    ServiceExt,
};

#[derive(Clone)]
struct First {
    tool_router: ToolRouter<Self>,
}

#[tool_router]
impl First {
    fn new() -> Self {
        Self { tool_router: Self::tool_router() }
    }

    #[tool(description = "The id of this process")]
    fn pid(&self) -> String {
        std::process::id().to_string()
    }
}

#[tool_handler]
impl ServerHandler for First {
    fn get_info(&self) -> ServerInfo {
        ServerInfo::new(ServerCapabilities::builder().enable_tools().build())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let service = First::new().serve(stdio()).await?;
    service.waiting().await?;
    Ok(())
}
