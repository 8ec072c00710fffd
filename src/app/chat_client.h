// A conversation with a chat server, for people: it grows by questions and streamed answers.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "app/chat_endpoint.h"
#include "base/result.h"

namespace baton::app {

struct ChatAnswer {
  std::string content{}, reasoning{};
  std::string finish{};  // as the server says; "stopped" if we stopped it, with what had come until then
  int64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  double first_s = 0, seconds = 0;  // until the first piece, and until the end
};

struct ChatPiece {
  bool reasoning = false;
  std::string_view text;
};

class ChatClient {
 public:
  ChatClient(ChatEndpoint endpoint, std::string model);

  // Fields of requests besides the conversation: "temperature" and others. The server says what is wrong with them.
  boost::json::object& fields() { return fields_; }
  void set_system(std::string text) { system_ = std::move(text); }
  const std::string& system() const { return system_; }
  // The conversation without its system message; questions and answers take turns.
  size_t turns() const { return said_.size(); }
  void forget() { said_.clear(); }
  // Drops the last answer and hands back the question before it; empty if there is none.
  std::string take_back();

  // Asks, and hands over the answer as it comes. `keep_going` is asked at least ten times a second. On an error, and on an answer without
  // anything in it, the conversation is what it was.
  Result<ChatAnswer> ask(const std::string& question, const std::function<void(const ChatPiece&)>& on_piece,
                         const std::function<bool()>& keep_going);

  // As {"messages": [...]}, which any client of such servers can send.
  std::string text() const;
  Status read(std::string_view text, const std::string& name);

 private:
  struct Said {
    std::string question, answer;
  };
  boost::json::array messages() const;

  const ChatEndpoint endpoint_;
  const std::string model_;
  http::Client client_;
  boost::json::object fields_;
  std::string system_;
  std::vector<Said> said_;
};

}  // namespace baton::app
