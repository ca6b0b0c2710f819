// Talks to a server with OpenAI's own JavaScript client, and prints what it saw as JSON.
import { createRequire } from "node:module";

const [folder, baseURL, apiKey] = process.argv.slice(2);
const { OpenAI } = createRequire(`${folder}/`)("openai");
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const messages = [{ role: "user", content: "Six times seven?" }];
const seen = { text: "", finish: [], toolCalls: 0, usage: null, error: null };

const stream = await client.chat.completions.create({
  model: "scripted",
  messages,
  stream: true,
  stream_options: { include_usage: true },
  apexbridge: { progress: true },
});
for await (const chunk of stream) {
  const choice = chunk.choices[0];
  seen.text += choice?.delta?.content ?? "";
  seen.toolCalls += choice?.delta?.tool_calls?.length ?? 0;
  if (choice?.finish_reason) seen.finish.push(choice.finish_reason);
  seen.usage = chunk.usage ?? seen.usage;
}
try {
  await client.chat.completions.create({ model: "scripted", messages, n: 2 });
} catch (error) {
  seen.error = { name: error.constructor.name, status: error.status, param: error.param };
}
console.log(JSON.stringify(seen));
