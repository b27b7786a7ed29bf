#include "kube/auth/kubeconfig.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "http/client/credentials.h"
#include "tests/support/fake_clock.h"
#include "tests/support/temporary_directory.h"

namespace oarlock::kube {
namespace {

using ::testing::HasSubstr;

constexpr char kKubeconfig[] = R"(
apiVersion: v1
kind: Config
current-context: dev
preferences: {}
clusters:
- name: one
  cluster: {server: "https://one:6443", certificate-authority-data: Q0EK}
- name: two
  cluster: {server: "https://two:6443", certificate-authority: ca/two.crt, tls-server-name: api.two, insecure-skip-tls-verify: true}
contexts:
- name: dev
  context: {cluster: one, user: certs, namespace: team}
- name: prod
  context: {cluster: two, user: token}
users:
- name: certs
  user: {client-certificate-data: Q0VSVA==, client-key: /keys/k.pem}
- name: token
  user: {token: abc, tokenFile: tokens/t}
)";

class ConfigTest : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = directory_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path.string();
  }
  Environment environment() {
    return [this](const std::string& name) { return variables_.count(name) != 0 ? variables_[name] : ""; };
  }
  Error error_of(const std::string& text) {
    const auto config = load_kubeconfig(write("bad", text));
    EXPECT_FALSE(config) << text;
    return config ? Error{} : config.error();
  }

  test::TemporaryDirectory directory_;
  std::map<std::string, std::string> variables_;
};

TEST_F(ConfigTest, ReadsTheCurrentContext) {
  const std::string path = write("config", kKubeconfig);
  const auto config = load_kubeconfig(path);
  ASSERT_TRUE(config) << config.error().message;
  ClusterConfig expected;
  expected.source = path + ", context dev";
  expected.server = "https://one:6443";
  expected.ca.text = "CA\n";
  expected.client_certificate.text = "CERT";
  expected.client_key.file = "/keys/k.pem";
  expected.namespace_name = "team";
  EXPECT_EQ(*config, expected);
}

TEST_F(ConfigTest, ResolvesPathsRelativeToTheKubeconfig) {
  std::string text = kKubeconfig;
  text.replace(text.find("current-context: dev"), 20, "current-context: prod");
  const auto config = load_kubeconfig(write("sub/config", text));
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->ca.file, (directory_.path() / "sub/ca/two.crt").string());
  EXPECT_EQ(config->token_file, (directory_.path() / "sub/tokens/t").string());
  EXPECT_EQ(config->tls_server_name, "api.two");
  EXPECT_FALSE(config->verify);
}

TEST_F(ConfigTest, MergesSeveralFiles) {
  const std::string first = write("first", "current-context: prod\nusers:\n- {name: token, user: {token: mine}}\n");
  const auto config =
      load_kubeconfig((directory_.path() / "missing").string() + ":" + first + ":" + write("second", kKubeconfig));
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->server, "https://two:6443");
  EXPECT_EQ(config->token, "mine");
  EXPECT_EQ(config->token_file, "");
}

TEST_F(ConfigTest, NamesMissingEntries) {
  EXPECT_EQ(load_kubeconfig("/no/such/file").error().code, ExitCode::kNoInput);
  EXPECT_THAT(load_kubeconfig("/no/such/file").error().message, HasSubstr("/no/such/file"));
  EXPECT_EQ(load_kubeconfig("/no/a:/no/b").error().code, ExitCode::kNoInput);
  const Error no_context = error_of("clusters: []\n");
  EXPECT_EQ(no_context.code, ExitCode::kConfig);
  EXPECT_THAT(no_context.message, HasSubstr("kubectl config use-context"));
  EXPECT_THAT(error_of("current-context: x\n").message, HasSubstr("no context named 'x'"));
  EXPECT_THAT(error_of("current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n").message,
              HasSubstr("no cluster named 'c'"));
  EXPECT_THAT(error_of("current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\nclusters: [{name: "
                       "c, cluster: {server: 'https://h'}}]\n")
                  .message,
              HasSubstr("no user named 'u'"));
  EXPECT_THAT(
      error_of("current-context: x\ncontexts: [{name: x, context: {cluster: c}}]\nclusters: [{name: c, cluster: {}}]\n")
          .message,
      HasSubstr("no 'server'"));
}

TEST_F(ConfigTest, RejectsOtherFiles) {
  EXPECT_THAT(error_of("- a\n- b\n").message, HasSubstr("not a kubeconfig"));
  EXPECT_THAT(error_of("").message, HasSubstr("not a kubeconfig"));
  EXPECT_THAT(error_of("a: [\n").message, HasSubstr("bad:1:4: the '[' that begins here has no end"));
}

TEST_F(ConfigTest, RejectsUnsupportedUsersWithARemedy) {
  const auto with_user = [&](const std::string& user) {
    return error_of(
        "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: "
        "{server: 'https://h'}}]\nusers: [{name: u, user: {" +
        user + "}}]\n");
  };
  const Error exec = with_user("exec: {command: aws}");
  EXPECT_EQ(exec.code, ExitCode::kConfig);
  EXPECT_THAT(exec.message, HasSubstr("user.exec: unknown apiVersion ''"));
  EXPECT_THAT(with_user("exec: {apiVersion: client.authentication.k8s.io/v1}").message, HasSubstr("no 'command'"));
  EXPECT_THAT(
      with_user("exec: {command: aws, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Always}").message,
      HasSubstr("'aws' requires a terminal"));
  EXPECT_THAT(with_user("auth-provider: {name: gcp}").message, HasSubstr("auth-provider"));
  EXPECT_THAT(with_user("username: a, password: b").message, HasSubstr("username"));
  EXPECT_THAT(with_user("client-key-data: '%%%'").message, HasSubstr("client-key-data is not base64"));
}

TEST_F(ConfigTest, UsesTheServiceAccountInAPod) {
  write("sa/ca.crt", "CA");
  const std::string token = write("sa/token", "t\n");
  write("sa/namespace", "oarlock-system\n");
  variables_ = {{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}, {"KUBERNETES_SERVICE_PORT", "6443"}};
  const auto config = find_cluster_config("", environment(), (directory_.path() / "sa").string());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->server, "https://10.0.0.1:6443");
  EXPECT_EQ(config->token_file, token);
  EXPECT_EQ(config->namespace_name, "oarlock-system");
  EXPECT_EQ(pod_namespace((directory_.path() / "sa").string()), "oarlock-system");
  EXPECT_EQ(pod_namespace((directory_.path() / "none").string()), "") << "the process runs outside of a pod";

  variables_["KUBERNETES_SERVICE_HOST"] = "fd00::1";
  EXPECT_EQ(find_cluster_config("", environment(), (directory_.path() / "sa").string())->server,
            "https://[fd00::1]:6443");

  std::filesystem::remove(token);
  const auto missing = find_cluster_config("", environment(), (directory_.path() / "sa").string());
  EXPECT_EQ(missing.error().code, ExitCode::kNoInput);
  EXPECT_THAT(missing.error().message, HasSubstr("automountServiceAccountToken"));
}

TEST_F(ConfigTest, PrefersFlagThenVariableThenPodThenHome) {
  const auto server_of = [&](const std::string& flag) {
    const auto config = find_cluster_config(flag, environment(), (directory_.path() / "sa").string());
    return config ? config->server : config.error().message;
  };
  const auto file = [&](const std::string& name) {
    return write(name,
                 "current-context: x\ncontexts: [{name: x, context: {cluster: c}}]\nclusters: [{name: c, cluster: "
                 "{server: 'https://" +
                     name + "'}}]\n");
  };
  EXPECT_THAT(server_of(""), HasSubstr("--kubeconfig"));
  file(".kube/config");
  variables_["HOME"] = directory_.path().string();
  EXPECT_EQ(server_of(""), "https://.kube/config");
  write("sa/ca.crt", "CA");
  write("sa/token", "t");
  variables_["KUBERNETES_SERVICE_HOST"] = "pod";
  EXPECT_EQ(server_of(""), "https://pod:443");
  variables_["KUBECONFIG"] = file("variable");
  EXPECT_EQ(server_of(""), "https://variable");
  EXPECT_EQ(server_of(file("flag")), "https://flag");
}

TEST_F(ConfigTest, SelectsContextByName) {
  const std::string path = write("config", kKubeconfig);
  const auto config = load_kubeconfig(path, "prod");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->server, "https://two:6443");
  EXPECT_EQ(config->source, path + ", context prod");
  const auto missing = load_kubeconfig(path, "staging");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ExitCode::kConfig);
  EXPECT_THAT(missing.error().message, HasSubstr("no context named 'staging'; the contexts are: dev, prod"));
}

TEST_F(ConfigTest, UserPrefersHomeToServiceAccount) {
  write("sa/ca.crt", "CA");
  write("sa/token", "t");
  variables_ = {{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}};
  const auto server_of = [&](const std::string& context) {
    const auto config = find_user_cluster_config("", context, environment(), (directory_.path() / "sa").string());
    return config ? config->server : config.error().message;
  };
  EXPECT_EQ(server_of(""), "https://10.0.0.1:443");
  EXPECT_THAT(server_of("dev"), HasSubstr("no kubeconfig that could have the context 'dev'"));
  write(".kube/config", kKubeconfig);
  variables_["HOME"] = directory_.path().string();
  EXPECT_EQ(server_of(""), "https://one:6443");
  EXPECT_EQ(server_of("prod"), "https://two:6443");
  variables_["KUBECONFIG"] = "/no/such/file";
  EXPECT_THAT(server_of(""), HasSubstr("/no/such/file"));
}

TEST_F(ConfigTest, OnlyACommandOfAUserSharesItsTerminalWithThePlugin) {
  const std::string path =
      write("exec",
            "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: "
            "{server: 'https://h'}}]\nusers: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, "
            "command: aws}}}]\n");
  EXPECT_TRUE(find_user_cluster_config(path, "", environment()).value().exec.value().shares_terminal);
  EXPECT_FALSE(find_cluster_config(path, environment()).value().exec.value().shares_terminal);
}

TEST_F(ConfigTest, SendsImpersonationHeaders) {
  const auto with_user = [&](const std::string& user) {
    return load_kubeconfig(write(
        "impersonation",
        "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: "
        "{server: 'https://h'}}]\nusers: [{name: u, user: {" +
            user + "}}]\n"));
  };
  const auto config =
      with_user("as: jane, as-uid: '7', as-groups: [dev, ops], as-user-extra: {reason: [drill], x.io/team: [a]}");
  ASSERT_TRUE(config) << config.error().message;
  using Headers = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(transport_options(*config, "test", nullptr).headers, (Headers{{"Impersonate-User", "jane"},
                                                                          {"Impersonate-Uid", "7"},
                                                                          {"Impersonate-Group", "dev"},
                                                                          {"Impersonate-Group", "ops"},
                                                                          {"Impersonate-Extra-reason", "drill"},
                                                                          {"Impersonate-Extra-x.io%2Fteam", "a"}}));
  const auto incomplete = with_user("as-groups: [dev]");
  ASSERT_FALSE(incomplete);
  EXPECT_THAT(incomplete.error().message, HasSubstr("need the user to impersonate in 'as'"));
}

TEST_F(ConfigTest, PrefersProxyUrlOverTheEnvironment) {
  const auto with_cluster = [](const std::string& cluster) {
    return "current-context: x\ncontexts: [{name: x, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: "
           "'https://h:6443'" +
           cluster + "}}]\n";
  };
  const std::string named = write("named", with_cluster(", proxy-url: 'http://user:pass@proxy:3128'"));
  const std::string plain = write("plain", with_cluster(""));
  const auto proxy_of = [&](const std::string& file) {
    const auto config = find_cluster_config(file, environment());
    return config ? transport_options(*config, "test", nullptr).proxy : config.error().message;
  };
  EXPECT_EQ(proxy_of(named), "http://user:pass@proxy:3128");
  EXPECT_EQ(proxy_of(plain), "");
  variables_ = {{"https_proxy", "http://lower"}, {"HTTP_PROXY", "http://of-http-servers"}};
  EXPECT_EQ(proxy_of(plain), "http://lower");
  variables_["HTTPS_PROXY"] = "http://upper";
  EXPECT_EQ(proxy_of(plain), "http://upper");
  variables_["no_proxy"] = "h";
  EXPECT_EQ(proxy_of(plain), "");
  EXPECT_EQ(proxy_of(named), "http://user:pass@proxy:3128");

  variables_ = {{"HTTPS_PROXY", "socks5://proxy"}};
  EXPECT_THAT(proxy_of(plain), HasSubstr("HTTPS_PROXY: the proxy 'socks5://proxy' is a SOCKS proxy"));
  const Error error = error_of(with_cluster(", proxy-url: 'socks5://proxy'"));
  EXPECT_EQ(error.code, ExitCode::kConfig);
  EXPECT_THAT(error.message, HasSubstr("proxy-url: the proxy 'socks5://proxy' is a SOCKS proxy"));
}

TEST_F(ConfigTest, AppliesProxyVariablesInAPod) {
  write("sa/ca.crt", "CA");
  write("sa/token", "t");
  variables_ = {{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}, {"HTTPS_PROXY", "http://proxy:3128"}};
  const auto proxy = [&] {
    return find_cluster_config("", environment(), (directory_.path() / "sa").string()).value().proxy;
  };
  EXPECT_EQ(proxy(), "http://proxy:3128");
  variables_["NO_PROXY"] = "10.0.0.0/8";
  EXPECT_EQ(proxy(), "");
}

TEST_F(ConfigTest, RereadsTheTokenFileAfterAMinuteOrInvalidation) {
  auto clock = std::make_shared<test::FakeClock>();
  const std::string path = write("token", "first\n");
  http::FileToken token(path, clock);
  EXPECT_EQ(token.token(), "first");
  write("token", "second");
  EXPECT_EQ(token.token(), "first");
  clock->advance(std::chrono::seconds(61));
  EXPECT_EQ(token.token(), "second");
  write("token", "third");
  token.invalidate();
  EXPECT_EQ(token.token(), "third");
  std::filesystem::remove(path);
  clock->advance(std::chrono::seconds(61));
  EXPECT_EQ(token.token(), "third");  // an old token is better than none
}

TEST_F(ConfigTest, MissingOrEmptyTokenFileIsAnError) {
  auto clock = std::make_shared<test::FakeClock>();
  http::FileToken missing("/no/such/token", clock);
  EXPECT_EQ(missing.token().error().code, ExitCode::kNoInput);
  http::FileToken empty(write("token", " \n"), clock);
  EXPECT_EQ(empty.token().error().code, ExitCode::kDataErr);
}

}  // namespace
}  // namespace oarlock::kube
