//! Logging in, and the change of a password that the service demands before anything else.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ServiceError } from "../api/client";
import { changePassword, gate, leave, login, notice, user } from "../api/session";
import { Button, Failure, Field } from "../ui/parts";

export function Login() {
  return gate.value === "password" ? <NewPassword /> : <LoginForm />;
}

function LoginForm() {
  const name = useSignal("");
  const password = useSignal("");
  const error = useSignal<unknown>(null);
  const busy = useSignal(false);
  const wait = useSignal(0);
  useEffect(() => {
    if (wait.value <= 0) return undefined;
    const timer = setTimeout(() => wait.value--, 1000);
    return () => clearTimeout(timer);
  }, [wait.value]);
  const submit = async (event: Event) => {
    event.preventDefault();
    busy.value = true;
    error.value = null;
    try {
      await login(name.value, password.value);
    } catch (problem) {
      error.value = problem;
      password.value = "";
      if (problem instanceof ServiceError && problem.retryAfterS) wait.value = Math.ceil(problem.retryAfterS);
    } finally {
      busy.value = false;
    }
  };
  return (
    <form class="card" onSubmit={(event) => void submit(event)} aria-labelledby="login-title">
      <h1 id="login-title">Log in</h1>
      {notice.value && !error.value ? <p class="quiet" role="status">{notice.value}</p> : null}
      <Field label="User name" name="username" value={name.value} autocomplete="username" required onInput={(value) => (name.value = value)} />
      <Field
        label="Password"
        name="password"
        type="password"
        value={password.value}
        autocomplete="current-password"
        required
        onInput={(value) => (password.value = value)}
      />
      <Failure error={error.value} />
      {wait.value > 0 && <p class="bad" data-test="wait">The next attempt is accepted in {wait.value} s.</p>}
      <Button type="submit" class="primary" busy={busy.value} disabled={wait.value > 0}>
        Log in
      </Button>
    </form>
  );
}

function NewPassword() {
  const password = useSignal("");
  const again = useSignal("");
  const error = useSignal<unknown>(null);
  const busy = useSignal(false);
  const differs = again.value !== "" && again.value !== password.value;
  const submit = async (event: Event) => {
    event.preventDefault();
    if (password.value !== again.value) return;
    busy.value = true;
    error.value = null;
    try {
      await changePassword(password.value);
    } catch (problem) {
      error.value = problem;
    } finally {
      busy.value = false;
    }
  };
  return (
    <form class="card" onSubmit={(event) => void submit(event)} aria-labelledby="password-title">
      <h1 id="password-title">Choose a new password</h1>
      <p class="quiet">
        The password of {user.value?.name} is the initial one. It has to be changed before anything else can be done.
      </p>
      <Field label="New password" name="new-password" type="password" value={password.value} autocomplete="new-password" required onInput={(value) => (password.value = value)} />
      <Field
        label="The same again"
        name="again"
        type="password"
        value={again.value}
        autocomplete="new-password"
        required
        invalid={differs}
        {...(differs ? { hint: "The two differ." } : {})}
        onInput={(value) => (again.value = value)}
      />
      <Failure error={error.value} />
      <p class="buttons">
        <Button type="submit" class="primary" busy={busy.value} disabled={differs}>
          Change
        </Button>
        <Button onClick={() => leave("")}>Cancel</Button>
      </p>
    </form>
  );
}
