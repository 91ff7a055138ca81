// Opens one page in Debian's headless Chromium and reports what a person would not see: console
// errors, page errors and every network request beyond the page itself.
import { chromium } from "playwright-core";

const [url, picture, width = "1280", height = "900"] = process.argv.slice(2);
const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
const browser = await chromium.launch({
  executablePath,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"],
});
try {
  const page = await browser.newPage({
    viewport: { width: Number(width), height: Number(height) },
    colorScheme: process.env.SCHEME ?? "light",
  });
  const errors = [];
  const requests = [];
  page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("request", (request) => request.url() !== url && !request.url().startsWith("data:") && requests.push(request.url()));
  await page.goto(url, { waitUntil: "load" });
  await page.waitForTimeout(300);
  const text = await page.evaluate(() => document.body.innerText);
  await page.screenshot({ path: picture, fullPage: true });
  console.log(JSON.stringify({ title: await page.title(), text_length: text.length, errors, requests }));
} finally {
  await browser.close();
}
