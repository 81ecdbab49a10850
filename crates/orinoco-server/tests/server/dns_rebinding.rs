//! Web pages that reach the TCP listener by a name of their own.

use orinoco_server::Limits;

use crate::fake::Served;

#[test]
fn over_tcp_a_foreign_host_is_refused() {
    let served = Served::new(Limits::default());
    let port = served.address.port();
    let own = [format!("127.0.0.1:{port}"), format!("localhost:{port}"), format!("[::1]:{port}")];
    for host in &own {
        let answer = served.tcp().request("GET", "/v1/status", &format!("Host: {host}\r\n"));
        assert_eq!(answer.status, 200, "{host}");
    }
    let foreign =
        [format!("evil.example:{port}"), "localhost".to_owned(), format!("{}:{}", "localhost", port ^ 1)];
    for host in &foreign {
        for path in ["/v1/status", "/metrics", "/healthz", "/none"] {
            let answer = served.tcp().request("GET", path, &format!("Host: {host}\r\n"));
            assert_eq!(answer.status, 403, "{host} {path}");
            assert_eq!(answer.cause(), "the request is not addressed to this machine by its own name");
        }
    }
    assert_eq!(served.tcp().request("GET", "/v1/status", "").status, 403, "without a host");
    let target = format!("http://evil.example:{port}/v1/status");
    assert_eq!(served.tcp().request("GET", &target, &served.host()).status, 403, "a target with a host");
    assert_eq!(served.metric("orinoco_server_refused_total{listener=\"tcp\",reason=\"host\"}"), 14.0);
    // A web page cannot reach the Unix socket.
    assert_eq!(served.unix().request("GET", "/v1/status", "Host: evil.example\r\n").status, 200);
}
