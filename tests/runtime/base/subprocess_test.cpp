#include "runtime/base/subprocess.hpp"

#include <signal.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <thread>

using namespace ingot;

namespace {

/// Two ends of a channel in this process.
struct Channel {
  Channel() {
    int ends[2] = {-1, -1};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    a = FileDescriptor(ends[0]);
    b = FileDescriptor(ends[1]);
  }
  FileDescriptor a;
  FileDescriptor b;
};

Subprocess shell(const std::string& script) {
  return value_or_throw(Subprocess::spawn({"/bin/sh", "-c", script}));
}

}  // namespace

TEST_CASE("a child's exit status, signal and last words are told", "[cpu][base]") {
  auto good = shell("echo out; echo err >&2");
  CHECK(good.wait().exit_status == 0);
  CHECK(good.output_tail() == "out\nerr\n");
  CHECK(good.wait().exit_status == -1);  // nothing is left to wait for
  CHECK(shell("exit 7").wait().describe() == "exit status 7");
  const auto crashed = shell("kill -SEGV $$").wait();
  CHECK(crashed.signal == SIGSEGV);
  CHECK_FALSE(crashed.was_killed());
  CHECK_THAT(crashed.describe(), Catch::Contains("signal 11"));
  CHECK(shell("kill -TERM $$").wait().was_killed());
  auto loud = shell("i=0; while [ $i -lt 500 ]; do echo line $i; i=$((i+1)); done");
  CHECK(loud.wait().exit_status == 0);
  CHECK(loud.output_tail().size() <= 2000);
  CHECK_THAT(loud.output_tail(), Catch::EndsWith("line 499\n"));
}

TEST_CASE("a child has an empty input and its channel, and ends with its owner", "[cpu][base]") {
  CHECK(shell("read word && exit 1; exit 0").wait().exit_status == 0);
  auto talker = shell("printf '\\003\\000\\000\\000\\000\\000\\000\\000abc' >&3");
  std::string frame;
  CHECK(read_frame(talker.channel(), frame) == FrameStatus::ok);
  CHECK(frame == "abc");
  CHECK(talker.wait().exit_status == 0);
  pid_t pid = -1;
  {
    const auto sleeper = shell("sleep 1000");
    pid = sleeper.pid();
    CHECK(::kill(pid, 0) == 0);
  }
  CHECK(::kill(pid, 0) == -1);
}

TEST_CASE("a program that is not there cannot be started", "[cpu][base]") {
  const auto child = Subprocess::spawn({"/absent/program"});
  REQUIRE_FALSE(child);
  CHECK(child.error().code == ErrorCode::io);
  CHECK_THAT(child.error().message, Catch::Contains("/absent/program"));
}

TEST_CASE("frames of any size pass, and a torn one closes the channel", "[cpu][base]") {
  Channel channel;
  const std::string large(3 << 20, 'x');  // more than a socket buffers
  bool wrote_all = false;                 // assertions are for one thread
  std::jthread writer([&] {
    wrote_all = write_frame(channel.a.get(), "") && write_frame(channel.a.get(), large) &&
                ::write(channel.a.get(), "\x09\0\0\0\0\0\0\0half", 12) == 12;
    channel.a.close();
  });
  std::string frame = "old";
  CHECK(read_frame(channel.b.get(), frame) == FrameStatus::ok);
  CHECK(frame.empty());
  CHECK(read_frame(channel.b.get(), frame) == FrameStatus::ok);
  CHECK(frame == large);
  CHECK(read_frame(channel.b.get(), frame) == FrameStatus::closed);
  writer.join();
  CHECK(wrote_all);
}

TEST_CASE("waiting for a frame ends at its time limit, and no frame is absurdly long",
          "[cpu][base]") {
  Channel channel;
  std::string frame;
  CHECK(read_frame(channel.b.get(), frame, std::chrono::milliseconds(20)) ==
        FrameStatus::timed_out);
  CHECK(::write(channel.a.get(), "\xff\xff\xff\xff\xff\xff\xff\xff", 8) == 8);
  CHECK(read_frame(channel.b.get(), frame) == FrameStatus::closed);
  channel.b.close();
  CHECK_FALSE(write_frame(channel.a.get(), "nobody reads"));
}
